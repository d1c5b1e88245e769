"""The data of every figure as one pure function; the page draws the data with plotly, papers with matplotlib."""
