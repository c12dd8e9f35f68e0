"""Pages, tables and charts made of the files of figures that lie beside."""
