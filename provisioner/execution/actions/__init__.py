"""The rules of every physical action: an intent before it, once, its outcome after it."""
