"""AWS Lambda's entry point: one gateway per execution environment."""

import os

from specinfer_gateway.wiring import build

# Built at import, as Lambda gives a function its fastest CPU before the first event.
lambda_handler = build(os.environ)
