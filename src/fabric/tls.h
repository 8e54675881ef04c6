/* tls.h - TLS 1.3 on a connected socket, with the key that the hello proves.
 *
 * (1) TLS 1.3 only, by OpenSSL: an external PSK together with an ephemeral key
 *     exchange, so that a key that leaks later opens nothing that was
 *     recorded. AES-128-GCM or ChaCha20-Poly1305. No certificates, tickets,
 *     early data, compression or renegotiation.
 * (2) The PSK is derived from that key by HMAC-SHA-256 under a label of its
 *     own and over the PSK identity, which says who connects (wire/hello.h).
 *     So no key serves two purposes. The identity itself crosses in the clear.
 * (3) An identity that is not known gets a random PSK: it is refused exactly
 *     as a wrong key is.
 * (4) There is no way back to plain text: the side that wants TLS takes
 *     nothing else, and says so (-REEF_ETLS).
 * (5) The accepting side makes nothing of OpenSSL before a whole first record
 *     is there. Records of the handshake have at most REEF_TLS_RECORD_MAX
 *     bytes, and there are few; so a half-open connection costs little.
 * (6) Never blocks. Encrypted output that the socket does not take is kept, up
 *     to a bound; then send takes nothing.
 * (7) After REKEY_BYTES a side changes its key, long before AES-GCM asks for
 *     it. Where the kernel does TLS itself (tls_kernel.h) it has ChaCha20,
 *     which never does.
 * (8) The end of the connection is the end of the stream, as in plain text:
 *     our BYE says why, and all else counts as lost. So nobody sends
 *     close_notify, and freeing says nothing to the peer.
 *
 * Thread: one at a time for each of: step; send; receive. Send and receive may
 * run at once (a lock is inside, the last in any order). */
#ifndef REEF_FABRIC_TLS_H
#define REEF_FABRIC_TLS_H

#include "fabric/fabric.h"

#include <sys/types.h>
#include <sys/uio.h>

struct reef_tls;

#define REEF_TLS_RECORD_MAX 2048
#define REEF_TLS_BINDING_SIZE 32

/* Begin on a connected, non-blocking socket, which stays the caller's; the TLS
 * is to be destroyed before it is closed. Caller owns *out.  -ENOMEM. */
int reef_tls_connect(int fd, const struct reef_connect_options *options,
		     struct reef_tls **out);
/* options: for its credential, which step asks. */
int reef_tls_accept(int fd, const struct reef_listen_options *options,
		    struct reef_tls **out);
void reef_tls_destroy(struct reef_tls *tls); /* NULL is fine */

/* Go on with the handshake. 0: it is done.  -EAGAIN: not yet.  Otherwise it
 * failed: -REEF_EAUTH: the keys differ.  -REEF_ETLS: the peer does not speak
 * TLS.  -REEF_EVERSION.  -REEF_EPROTO.  -REEF_ENOLINK.  -ENOMEM. */
int reef_tls_step(struct reef_tls *tls);

/* After the handshake: a value that only the two ends of this one connection
 * have. */
void reef_tls_binding(const struct reef_tls *tls,
		      uint8_t binding[REEF_TLS_BINDING_SIZE]);
/* Who has connected. */
void reef_tls_peer(const struct reef_tls *tls, uint32_t *session,
		   char identity[REEF_IDENTITY_MAX + 1]);

/* Send what there is room for. Returns how many bytes were taken.  -EAGAIN: the
 * socket is full, nothing was taken.  -REEF_ENOLINK. */
ssize_t reef_tls_send(struct reef_tls *tls, const struct iovec *parts,
		      int count);
/* How many bytes of what was taken, encrypted, are not in the socket yet; the
 * next send, even of nothing, goes on with them. Thread: any. */
size_t reef_tls_unsent(const struct reef_tls *tls);

/* Receive into the parts, in turn. Without from_socket only what was read from
 * it before. *drained: there is nothing more, in the socket either.
 * -EAGAIN: nothing (drained).  -REEF_EPROTO: a record was forged.
 * -REEF_ENOLINK: closed by the peer. */
ssize_t reef_tls_receive(struct reef_tls *tls, const struct iovec *parts,
			 int count, bool from_socket, bool *drained);
/* True if something was read from the socket and not yet received. */
bool reef_tls_has_more(struct reef_tls *tls);

/* True if a stream that begins with these two bytes may be one of TLS, and no
 * frame of ours. */
bool reef_tls_looks_like(const uint8_t bytes[2]);

/* For tests: change the key after so many bytes. */
void reef_tls_set_rekey(struct reef_tls *tls, uint64_t bytes);

#endif
