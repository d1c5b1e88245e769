"""A figure's data, one pure function each; the page draws them with plotly, papers with matplotlib."""
