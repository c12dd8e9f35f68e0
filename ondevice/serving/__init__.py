"""What the screen and the HTTP API share, without Gradio."""
