"""What every room stands on: files on disk, limits on reading, printable text, threads, extras, plug-ins, engines."""
