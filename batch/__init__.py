"""A library of documents on one machine or many, by Ray Data: what alone knows Ray, fsspec and Parquet."""
