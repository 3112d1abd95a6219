"""Word vectors of running text, by several tools, judged by people's scores of word pairs."""
