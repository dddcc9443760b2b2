"""Files that hold arrays by value: their layout, compression and chunks."""
