"""The page. The only package that imports gradio."""

import os

# Gradio reads it when it is first imported; without it, it calls other hosts.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
