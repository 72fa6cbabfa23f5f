"""What exists in AWS, and the typed description of one deployment that it is made from."""
