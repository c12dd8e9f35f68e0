"""The part that the screen and the HTTP API share, without Gradio."""
