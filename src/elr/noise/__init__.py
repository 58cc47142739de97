"""Wrong labels made on purpose, so that what a method does can be measured."""
