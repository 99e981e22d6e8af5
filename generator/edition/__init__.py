"""What all exporters share: a library with its cards rendered, its pages, its data for scripts, its assets."""
