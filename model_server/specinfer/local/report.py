"""What a person sees in the terminal."""

import json
import textwrap
from typing import TYPE_CHECKING

from specinfer.local.ask import Answer, chat_body

if TYPE_CHECKING:
    from specinfer.local.stack import Stack

_WIDTH = 88
_TRY_TOKENS = 64


def answered(prompt: str, answer: Answer, again: Answer) -> str:
    """The question, the answer, what speculation saved, and that the second came from cache."""
    return "\n".join(
        (
            "",
            _block("prompt", prompt),
            "",
            _block("answer", answer.text),
            "",
            _block("figures", _figures(answer)),
            _block("again", f"{again.seconds:.3f} s, X-Cache: {again.cache}"),
        )
    )


def addresses(stack: "Stack") -> str:
    """Where the service is, with a call to paste for each way in."""
    rest, runtime = stack.rest, stack.runtime
    chat = json.dumps(chat_body("Why is the sky blue?", _TRY_TOKENS))
    tgi = json.dumps({"inputs": "The sky is", "parameters": {"max_new_tokens": _TRY_TOKENS}})
    return f"""
{stack.model_id} answers at {rest} (REST) and {runtime} (SageMaker Runtime). Try it:

  curl -s {rest}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{chat}'

  curl -s {rest}/generate -H 'Content-Type: application/json' \\
    -d '{tgi}'

  import boto3
  runtime = boto3.client(
      "sagemaker-runtime", endpoint_url="{runtime}", region_name="us-east-1",
      aws_access_key_id="local", aws_secret_access_key="local")
  answer = runtime.invoke_endpoint(
      EndpointName="{stack.endpoint}", ContentType="application/json",
      Body='{tgi}')
  print(answer["Body"].read().decode())"""


def _block(label: str, text: str) -> str:
    """`text` wrapped beside its label, its own line breaks kept."""
    indent = " " * 10
    lines = [
        part
        for line in text.splitlines() or [""]
        for part in textwrap.wrap(line, _WIDTH - 10, drop_whitespace=False) or [""]
    ]
    rest = "".join(f"\n{indent}{line}".rstrip(" ") for line in lines[1:])
    return f"{label:<10}{lines[0]}{rest}"


def _figures(answer: Answer) -> str:
    spec = answer.speculation
    return (
        f"{answer.new_tokens} tokens in {answer.seconds:.1f} s; "
        f"{spec['tokens_per_step']:.2f} tokens per LLM step\n"
        f"the LLM ran {spec['steps']} decoding steps for {answer.new_tokens} tokens\n"
        f"{spec['accepted']} of {spec['drafted']} drafted tokens accepted"
    )
