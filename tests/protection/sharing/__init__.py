"""The shared protection, played in memory: honest sessions, liars, crashes, and what an upload gives away."""
