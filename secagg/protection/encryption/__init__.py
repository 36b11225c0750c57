"""One sum of ciphertexts: clients encrypt and mask once, the server adds, a key holder opens the sum once.

The masks protect against a malicious server or client, the encryption protects what is stored and sent on top: a
malicious client can upload a ciphertext whose opening depends on the secret key, and no check on it can tell.
"""
