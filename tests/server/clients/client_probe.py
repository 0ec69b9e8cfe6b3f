"""Ask a running stack through one client library: client_probe.py NAME RUNTIME_URL SERVER_URL.

Runs in a virtual environment that has the library; prints the texts it got as JSON.
"""

import json
import os
import sys
from collections.abc import Callable

ENDPOINT = "specinfer"
PROMPT = "\u65e5\u672c\u8a9e \U0001f642 done "
TOKENS = 40
MESSAGES = [{"role": "user", "content": PROMPT}]


def boto3_client(runtime: str, server: str) -> list[str]:
    import boto3

    client = boto3.client("sagemaker-runtime", endpoint_url=runtime)
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}}
    call = {"EndpointName": ENDPOINT, "ContentType": "application/json"}
    whole = client.invoke_endpoint(**call, Body=json.dumps(body))
    streamed = client.invoke_endpoint_with_response_stream(
        **call, Body=json.dumps(body | {"stream": True})
    )
    parts = [event["PayloadPart"]["Bytes"].decode() for event in streamed["Body"]]
    events = [json.loads(line[6:]) for line in "".join(parts).splitlines() if line]
    return [
        json.loads(whole["Body"].read())[0]["generated_text"],
        "".join(event["token"]["text"] for event in events),
    ]


def openai_sdk(runtime: str, server: str) -> list[str]:
    import openai

    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none")
    limits = {"model": "", "max_tokens": TOKENS, "temperature": 0}
    chat = client.chat.completions.create(messages=MESSAGES, **limits)
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            messages=MESSAGES, stream=True, stream_options=options, **limits
        )
    )
    assert chunks[-1].usage.completion_tokens == TOKENS
    completion = client.completions.create(prompt=PROMPT, **limits)
    try:
        client.chat.completions.create(messages=MESSAGES, n=9, **limits)
    except openai.BadRequestError as error:
        assert error.param == "n", error
    return [
        chat.choices[0].message.content,
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
        completion.choices[0].text,
    ]


def litellm_sdk(runtime: str, server: str) -> list[str]:
    import litellm

    os.environ["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"] = runtime
    texts = []
    for model in (f"sagemaker/{ENDPOINT}", f"sagemaker_chat/{ENDPOINT}"):
        call = {
            "model": model,
            "messages": MESSAGES,
            "max_tokens": TOKENS,
            "temperature": 0,
            "sagemaker_base_url": f"{runtime}/endpoints/{ENDPOINT}/invocations",
        }
        texts.append(litellm.completion(**call).choices[0].message.content)
        chunks = litellm.completion(
            **call
            | {
                "stream": True,
                "sagemaker_base_url": f"{runtime}/endpoints/{ENDPOINT}/invocations-response-stream",
            }
        )
        texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    return texts


def langchain_aws(runtime: str, server: str) -> list[str]:
    import boto3
    from langchain_aws.llms import SagemakerEndpoint
    from langchain_aws.llms.sagemaker_endpoint import LLMContentHandler

    class Handler(LLMContentHandler):
        content_type = accepts = "application/json"

        def transform_input(self, prompt: str, model_kwargs: dict[str, object]) -> bytes:
            body = {"inputs": prompt, "parameters": {"max_new_tokens": TOKENS}}
            return json.dumps(body | model_kwargs).encode()

        def transform_output(self, output: object) -> str:
            raw = output if isinstance(output, bytes) else output.read()  # type: ignore[attr-defined]
            text = raw.decode().strip()
            if text.startswith("data:"):
                return str(json.loads(text[5:])["token"]["text"])
            return str(json.loads(text)[0]["generated_text"]) if text else ""

    client = boto3.client("sagemaker-runtime", endpoint_url=runtime)

    def llm(**kwargs: object) -> SagemakerEndpoint:
        return SagemakerEndpoint(
            endpoint_name=ENDPOINT, client=client, content_handler=Handler(), **kwargs
        )

    streaming = llm(streaming=True, model_kwargs={"stream": True})
    return [llm().invoke(PROMPT), "".join(streaming.stream(PROMPT))]


def sagemaker_v2(runtime: str, server: str) -> list[str]:
    import boto3
    from sagemaker import Session
    from sagemaker.deserializers import JSONDeserializer
    from sagemaker.predictor import Predictor
    from sagemaker.serializers import JSONSerializer

    session = Session(
        boto3.Session(),
        sagemaker_runtime_client=boto3.client("sagemaker-runtime", endpoint_url=runtime),
        sagemaker_client=boto3.client("sagemaker"),
    )
    predictor = Predictor(
        ENDPOINT, session, serializer=JSONSerializer(), deserializer=JSONDeserializer()
    )
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}}
    return [predictor.predict(body)[0]["generated_text"]]


def sagemaker_v3(runtime: str, server: str) -> list[str]:
    os.environ["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"] = runtime
    from sagemaker.core.resources import Endpoint

    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}}
    endpoint = Endpoint(endpoint_name=ENDPOINT)
    answer = endpoint.invoke(body=json.dumps(body), content_type="application/json")
    return [json.loads(answer.body.read())[0]["generated_text"]]


PROBES: dict[str, Callable[[str, str], list[str]]] = {
    "boto3": boto3_client,
    "openai": openai_sdk,
    "litellm": litellm_sdk,
    "langchain": langchain_aws,
    "sagemaker2": sagemaker_v2,
    "sagemaker3": sagemaker_v3,
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))
