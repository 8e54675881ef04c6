/* stream.h - frames over a connected socket, and the hello that opens it.
 *
 * shm (unix socket, passes descriptors), tcp, and verbs (its control channel)
 * all start the same way; this is that way, once. Layouts are in src/wire.
 *
 *   connector                                   acceptor
 *     HELLO  versions, session, number,     -->  look up the key
 *            identity, fabric, limits, nonce A
 *            <--  CHALLENGE  version, nonce B, proof(key, "acceptor", all)
 *     PROOF  proof(key, "connector", all)   -->  refuse a fenced session and an
 *                                                old number, end the old link
 *                                                of this session
 *            <--  WELCOME  limits, proof(key, "welcome", all)
 *   (or, at any point, BYE with a code)
 *
 * (1) A proof is HMAC-SHA-256 over a label and every byte both sides said
 *     before it, so neither can be replayed, reflected or downgraded. Proofs
 *     are compared in constant time. An unknown identity gets a CHALLENGE with
 *     a random proof, so that guessing names teaches nothing.
 * (2) Before WELCOME a frame may have at most REEF_HELLO_FRAME_MAX bytes, and a
 *     peer has silence_ns to finish.
 * (3) Never blocks. Output beyond what the socket takes is kept up to a bound;
 *     past it, send returns -EAGAIN and took nothing.
 * (4) Integers are little-endian. Reserved bytes are 0 and checked.
 * (5) With TLS (tls.h) its handshake comes first, with a PSK of the same key,
 *     and the frames are inside. What only the two ends of that connection have
 *     (its exporter) is the first thing said in the transcript: a proof fits no
 *     other connection, whoever was in between. A side that wants TLS tells
 *     one that does not, and the other way round: BYE with -REEF_ETLS.
 *
 * Thread: locked by whoever owns the link. */
#ifndef REEF_FABRIC_STREAM_H
#define REEF_FABRIC_STREAM_H

#include "fabric/fabric.h"
#include "fabric/tls.h"
#include "wire/frame.h"

#include <sys/uio.h>

struct reef_stream;

#define REEF_HELLO_FRAME_MAX 1024

/* Take over a connected, non-blocking socket. payload_max: of a frame, once
 * welcomed. Caller owns *out; destroying it closes the socket.  -ENOMEM. */
int reef_stream_create(int fd, uint32_t payload_max, struct reef_stream **out);
void reef_stream_destroy(struct reef_stream *stream); /* NULL is fine */
int reef_stream_fd(const struct reef_stream *stream);

/* Send one frame: header, then parts. pass_fd: a descriptor to go with it over
 * a unix socket, or -1; it is duplicated by the kernel and stays the caller's.
 * -EAGAIN: output is full, nothing was taken.  -EMSGSIZE.
 * -REEF_ENOLINK: the connection is gone. */
int reef_stream_send(struct reef_stream *stream, uint8_t type, uint64_t tag,
		     const struct iovec *parts, int count, int pass_fd);

/* Push kept output. 0: all is out.  -EAGAIN: wait until writable. */
int reef_stream_flush(struct reef_stream *stream);
bool reef_stream_wants_write(const struct reef_stream *stream);

struct reef_frame {
	uint8_t type;
	uint64_t tag;
	uint32_t length;
	const uint8_t *payload; /* until the next receive */
	int fd;			/* passed with it, now the caller's; or -1 */
};

/* The next whole frame.  -EAGAIN: none yet.  -REEF_EPROTO: malformed, or too
 * long.  -REEF_ENOLINK: closed by the peer. */
int reef_stream_receive(struct reef_stream *stream, struct reef_frame *out);
/* True if the last read of the socket brought all there was, and every frame of
 * it has been received. */
bool reef_stream_is_drained(const struct reef_stream *stream);

/* From now on frames may be as long as payload_max; the hello calls it. */
void reef_stream_welcome(struct reef_stream *stream);

/* From now on frames go through TLS, whose handshake is done; the stream owns
 * it. Nothing may have been read or kept yet. */
void reef_stream_set_tls(struct reef_stream *stream, struct reef_tls *tls);
/* Hand the TLS over, to be taken before the socket is; NULL: there is none. */
struct reef_tls *reef_stream_release_tls(struct reef_stream *stream);
/* What was read and not yet received; until then. Returns how much. */
size_t reef_stream_peek(const struct reef_stream *stream,
			const uint8_t **bytes);

/* Give the socket back to a caller who goes on alone, when all output is out:
 * returns it, and what was read from it already (until destroy). */
int reef_stream_release(struct reef_stream *stream, const uint8_t **rest,
			size_t *rest_size);

/* When bytes last came, on reef_now_ns's clock; for silence_ns. */
uint64_t reef_stream_heard_ns(const struct reef_stream *stream);

/* --- hello --- */

struct reef_hello_local {
	const char *fabric; /* "shm", "tcp", "verbs": both must say the same */
	uint64_t domain;    /* this side's CPU domain, told to the peer */
	uint32_t ops_max, length_max, message_max; /* told to the peer */
	bool tls; /* all of it inside TLS (5) */
};

/* What a side of this name tells its peer. */
struct reef_hello_local
reef_hello_local(const char *fabric, const struct reef_fabric_options *options);

struct reef_hello_peer {
	uint32_t session;
	uint32_t number; /* of the link; 0: it has none */
	char identity[REEF_IDENTITY_MAX + 1];
	uint64_t domain;
	uint32_t ops_max, length_max, message_max;
	uint16_t version; /* in use */
};

/* A hello under way on a stream; one each for its two sides. */
struct reef_hello;

int reef_hello_connect(struct reef_stream *stream,
		       const struct reef_hello_local *local,
		       const struct reef_connect_options *options,
		       struct reef_hello **out);

/* admit: called once the peer has proven its key and before WELCOME; an error
 * refuses it with that code (fenced, an old number, too many links); here the
 * old link of the session is ended (F5). */
int reef_hello_accept(struct reef_stream *stream,
		      const struct reef_hello_local *local,
		      const struct reef_listen_options *options,
		      int (*admit)(void *context, struct reef_hello_peer *peer),
		      void *context, struct reef_hello **out);

/* Go on with what has come. 0: welcomed, *peer is filled in.  -EAGAIN: not
 * yet.  Otherwise it failed: -REEF_EAUTH, -REEF_EVERSION, -REEF_EPROTO,
 * -REEF_ETLS, -REEF_EFENCED, -ESTALE, -EBUSY, -REEF_ENOLINK; the other side was
 * told (BYE). */
int reef_hello_step(struct reef_hello *hello, struct reef_hello_peer *peer);
void reef_hello_destroy(struct reef_hello *hello); /* NULL is fine */

/* Tell the peer why this ends, as far as the socket takes it. */
void reef_stream_bye(struct reef_stream *stream, int reason);
/* The reason in a BYE frame, negative; -REEF_EPROTO if it makes no sense. */
int reef_frame_bye_reason(const struct reef_frame *frame);

#endif
