/* tls_kernel.h - hand a connection's TLS over to the kernel.
 *
 * After the handshake the kernel encrypts and decrypts by itself, where it has
 * the module `tls`: then send and recv on the socket are all there is, without
 * a lock or a copy of ours.
 *
 * (1) Only ChaCha20-Poly1305: kernels before 6.14 cannot change a key, and it
 * is the suite that never needs to. A side with such a kernel prefers it. (2)
 * The secrets of the two directions come from OpenSSL as lines of a key log,
 *     which is the only way that it gives them out; they stay in memory and are
 *     wiped.
 * (3) Either both directions are the kernel's, or none is.
 *
 * Thread: any. */
#ifndef REEF_FABRIC_TLS_KERNEL_H
#define REEF_FABRIC_TLS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#define TLS_SECRET_SIZE 32

struct tls_secrets {
	bool has_client, has_server;
	uint8_t client[TLS_SECRET_SIZE], server[TLS_SECRET_SIZE];
};

/* True if this machine's kernel has TLS; asked once. */
bool tls_kernel_is_there(void);

/* Keep the secret that a line of a key log has, if it is one of the two. */
void tls_kernel_note(struct tls_secrets *secrets, const char *line);

/* Let the kernel go on with a socket, on which nothing has been sent or
 * received after the handshake. is_connector: which side this is. -ENOTSUP: it
 * does not; the socket is as before.  Else: the socket is of no more use. */
int tls_kernel_start(int fd, bool is_connector,
		     const struct tls_secrets *secrets);

#endif
