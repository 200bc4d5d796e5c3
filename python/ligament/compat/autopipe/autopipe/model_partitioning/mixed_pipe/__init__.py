"""FTPipe's Mixed-Pipe: names of options."""
