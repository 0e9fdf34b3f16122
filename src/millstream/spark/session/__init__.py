"""The Spark session, and what is kept beside Spark so that it starts quickly."""
