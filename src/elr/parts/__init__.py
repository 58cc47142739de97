"""Small pieces that methods are made of. Nothing here imports anything else of ours."""
