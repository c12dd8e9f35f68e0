"""A library of documents on one machine or many, by Ray Data: the only room that knows Ray, fsspec and Parquet."""
