"""Formats of requests and answers: bytes in, bytes or decisions out."""
