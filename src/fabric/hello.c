/* hello.c - the hello of stream.h.
 *
 *   connector:  create --HELLO--> CHALLENGE awaited --PROOF--> WELCOME awaited
 *               -> welcomed
 *   acceptor:   create -> HELLO awaited --CHALLENGE--> PROOF awaited
 *               --admit, WELCOME--> flushing -> welcomed
 *   either:     anything wrong --BYE--> failed
 *   with TLS its handshake comes before all of that (secure_stream)
 *
 * (1) The transcript is every frame so far, headers included, in the order in
 *     which they were said. A proof is over its label and the transcript up to
 *     the proof itself; then it joins the transcript.
 * (2) The labels differ and the nonces are fresh on both sides, so a proof
 *     fits only one side of one connection.
 *     Under TLS the connection's binding is said before all frames.
 * (3) Nothing is told to a peer that has proven nothing, except the version, a
 *     nonce, and a proof that only a holder of the key can tell from noise.
 */
#include "wire/hello.h"
#include "base/log.h"
#include "base/random.h"
#include "fabric/stream.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LABEL_SIZE 16
#define TRANSCRIPT_MAX                                                         \
	(LABEL_SIZE + REEF_TLS_BINDING_SIZE + 4 * REEF_FRAME_HEADER_SIZE +     \
	 REEF_WIRE_HELLO_SIZE + REEF_WIRE_CHALLENGE_SIZE +                     \
	 REEF_WIRE_PROOF_SIZE + REEF_WIRE_WELCOME_SIZE)

static_assert(sizeof(((struct reef_wire_hello *)0)->identity) ==
		      REEF_IDENTITY_MAX + 1,
	      "wire layout");

enum state {
	AWAIT_HELLO,
	AWAIT_CHALLENGE,
	AWAIT_PROOF,
	AWAIT_WELCOME,
	FLUSHING,
	WELCOMED,
	FAILED
};

struct reef_hello {
	struct reef_stream *stream;
	struct reef_tls *tls; /* until its handshake is done */
	bool is_secured;
	enum state state;
	int error; /* once FAILED */
	struct reef_hello_local local;
	char fabric[8];
	struct reef_hello_peer peer; /* acceptor: of TLS, then of HELLO */
	uint8_t key[REEF_KEY_SIZE];
	/* The label stands in front, so that a proof is over one piece. */
	uint8_t transcript[TRANSCRIPT_MAX];
	size_t said;
	/* acceptor */
	struct reef_listen_options listen;
	int (*admit)(void *context, struct reef_hello_peer *peer);
	void *context;
};

struct reef_hello_local
reef_hello_local(const char *fabric, const struct reef_fabric_options *options)
{
	return (struct reef_hello_local){
		.fabric = fabric,
		.domain = reef_domain_cpu(),
		.ops_max = options->ops_max,
		.length_max = options->length_max,
		.message_max = options->message_max,
	};
}

/* --- transcript and proofs --- */

static void note_said(struct reef_hello *hello, const void *bytes, size_t size)
{
	reef_assert(size <= sizeof(hello->transcript) - hello->said);
	memcpy(hello->transcript + hello->said, bytes, size);
	hello->said += size;
}

static void note_header(struct reef_hello *hello, uint8_t type, uint32_t length)
{
	uint8_t bytes[REEF_FRAME_HEADER_SIZE];

	reef_frame_header_encode(
		&(struct reef_frame_header){.type = type, .length = length},
		bytes);
	note_said(hello, bytes, sizeof(bytes));
}

static int make_proof(struct reef_hello *hello, const char *label,
		      uint8_t proof[REEF_WIRE_PROOF_SIZE])
{
	unsigned int size = 0;

	memset(hello->transcript, 0, LABEL_SIZE);
	memcpy(hello->transcript, label, strnlen(label, LABEL_SIZE - 1));
	if (!HMAC(EVP_sha256(), hello->key, sizeof(hello->key),
		  hello->transcript, hello->said, proof, &size) ||
	    size != REEF_WIRE_PROOF_SIZE)
		return -ENOMEM;
	return 0;
}

/* Check a proof against what was said so far, and note it as said. -REEF_EAUTH:
 * it does not fit. */
static int check_proof(struct reef_hello *hello, const char *label,
		       const uint8_t proof[REEF_WIRE_PROOF_SIZE])
{
	uint8_t expected[REEF_WIRE_PROOF_SIZE];
	int rc = make_proof(hello, label, expected);

	if (rc < 0)
		return rc;
	if (CRYPTO_memcmp(expected, proof, sizeof(expected)) != 0)
		return -REEF_EAUTH;
	note_said(hello, proof, REEF_WIRE_PROOF_SIZE);
	return 0;
}

/* Send a frame whose last bytes are the proof over all before them. */
static int send_proven(struct reef_hello *hello, uint8_t type, uint8_t *payload,
		       size_t size, const char *label)
{
	struct iovec part = {payload, size};
	size_t before = size - REEF_WIRE_PROOF_SIZE;
	int rc;

	note_header(hello, type, (uint32_t)size);
	note_said(hello, payload, before);
	rc = make_proof(hello, label, payload + before);
	if (rc < 0)
		return rc;
	note_said(hello, payload + before, REEF_WIRE_PROOF_SIZE);
	return reef_stream_send(hello->stream, type, 0, &part, 1, -1);
}

static void note_unproven(struct reef_hello *hello,
			  const struct reef_frame *frame)
{
	note_header(hello, frame->type, frame->length);
	note_said(hello, frame->payload, frame->length - REEF_WIRE_PROOF_SIZE);
}

static struct reef_wire_limits local_limits(const struct reef_hello *hello)
{
	return (struct reef_wire_limits){
		.ops_max = hello->local.ops_max,
		.length_max = hello->local.length_max,
		.message_max = hello->local.message_max,
	};
}

static void note_peer_limits(struct reef_hello *hello,
			     const struct reef_wire_limits *limits)
{
	hello->peer.ops_max = limits->ops_max;
	hello->peer.length_max = limits->length_max;
	hello->peer.message_max = limits->message_max;
}

/* --- connector --- */

static int send_hello(struct reef_hello *hello)
{
	struct reef_wire_hello wire = {
		.magic = REEF_WIRE_MAGIC,
		.version_min = REEF_WIRE_VERSION_MIN,
		.version_max = REEF_WIRE_VERSION_MAX,
		.session = hello->peer.session,
		.number = hello->peer.number,
		.domain = hello->local.domain,
		.limits = local_limits(hello),
	};
	uint8_t bytes[REEF_WIRE_HELLO_SIZE];
	struct iovec part = {bytes, sizeof(bytes)};
	int rc = reef_random_secret(wire.nonce, sizeof(wire.nonce));

	if (rc < 0)
		return rc;
	memcpy(wire.fabric, hello->fabric, sizeof(wire.fabric));
	memcpy(wire.identity, hello->peer.identity, sizeof(wire.identity));
	reef_wire_hello_encode(&wire, bytes);
	note_header(hello, REEF_FRAME_HELLO, sizeof(bytes));
	note_said(hello, bytes, sizeof(bytes));
	return reef_stream_send(hello->stream, REEF_FRAME_HELLO, 0, &part, 1,
				-1);
}

static int on_challenge(struct reef_hello *hello,
			const struct reef_frame *frame)
{
	struct reef_wire_challenge challenge;
	uint8_t proof[REEF_WIRE_PROOF_SIZE];
	int rc;

	rc = reef_wire_challenge_decode(frame->payload, frame->length,
					&challenge);
	if (rc < 0)
		return rc;
	note_unproven(hello, frame);
	rc = check_proof(hello, "reef acceptor", challenge.proof);
	if (rc < 0)
		return rc;
	if (challenge.version < REEF_WIRE_VERSION_MIN ||
	    challenge.version > REEF_WIRE_VERSION_MAX)
		return -REEF_EPROTO;
	hello->peer.version = challenge.version;
	hello->state = AWAIT_WELCOME;
	return send_proven(hello, REEF_FRAME_PROOF, proof, sizeof(proof),
			   "reef connector");
}

static int on_welcome(struct reef_hello *hello, const struct reef_frame *frame)
{
	struct reef_wire_welcome welcome;
	int rc;

	rc = reef_wire_welcome_decode(frame->payload, frame->length, &welcome);
	if (rc < 0)
		return rc;
	note_unproven(hello, frame);
	rc = check_proof(hello, "reef welcome", welcome.proof);
	if (rc < 0)
		return rc;
	hello->peer.domain = welcome.domain;
	note_peer_limits(hello, &welcome.limits);
	hello->state = WELCOMED;
	return 0;
}

/* --- acceptor --- */

static int send_challenge(struct reef_hello *hello)
{
	struct reef_wire_challenge challenge = {
		.version = hello->peer.version,
	};
	uint8_t bytes[REEF_WIRE_CHALLENGE_SIZE];
	int rc = reef_random_secret(challenge.nonce, sizeof(challenge.nonce));

	if (rc < 0)
		return rc;
	reef_wire_challenge_encode(&challenge, bytes);
	hello->state = AWAIT_PROOF;
	return send_proven(hello, REEF_FRAME_CHALLENGE, bytes, sizeof(bytes),
			   "reef acceptor");
}

static int on_hello(struct reef_hello *hello, const struct reef_frame *frame)
{
	struct reef_wire_hello wire;
	int rc;

	rc = reef_wire_hello_decode(frame->payload, frame->length, &wire);
	if (rc < 0)
		return rc;
	if (wire.version_min > REEF_WIRE_VERSION_MAX ||
	    wire.version_max < REEF_WIRE_VERSION_MIN)
		return -REEF_EVERSION;
	if (memcmp(wire.fabric, hello->fabric, sizeof(wire.fabric)) != 0)
		return -REEF_EPROTO;
	/* Who came through TLS as one session is no other inside. */
	if (hello->is_secured && (wire.session != hello->peer.session ||
				  memcmp(wire.identity, hello->peer.identity,
					 sizeof(wire.identity)) != 0))
		return -REEF_EPROTO;
	hello->peer.version = wire.version_max < REEF_WIRE_VERSION_MAX
				      ? wire.version_max
				      : REEF_WIRE_VERSION_MAX;
	hello->peer.session = wire.session;
	hello->peer.number = wire.number;
	hello->peer.domain = wire.domain;
	memcpy(hello->peer.identity, wire.identity, sizeof(wire.identity));
	note_peer_limits(hello, &wire.limits);
	note_header(hello, REEF_FRAME_HELLO, frame->length);
	note_said(hello, frame->payload, frame->length);
	/* A refused identity goes on with a key that nobody has, so that the
	 * refusal looks like any other wrong key. */
	if (hello->listen.credential(hello->listen.context,
				     hello->peer.identity, wire.session,
				     hello->key) < 0) {
		rc = reef_random_secret(hello->key, sizeof(hello->key));
		if (rc < 0)
			return rc;
	}
	return send_challenge(hello);
}

static int send_welcome(struct reef_hello *hello)
{
	struct reef_wire_welcome welcome = {
		.domain = hello->local.domain,
		.limits = local_limits(hello),
	};
	uint8_t bytes[REEF_WIRE_WELCOME_SIZE];

	reef_wire_welcome_encode(&welcome, bytes);
	hello->state = FLUSHING;
	return send_proven(hello, REEF_FRAME_WELCOME, bytes, sizeof(bytes),
			   "reef welcome");
}

static int on_proof(struct reef_hello *hello, const struct reef_frame *frame)
{
	struct reef_wire_proof proof;
	int rc;

	rc = reef_wire_proof_decode(frame->payload, frame->length, &proof);
	if (rc < 0)
		return rc;
	note_unproven(hello, frame);
	rc = check_proof(hello, "reef connector", proof.proof);
	if (rc < 0)
		return rc;
	if (hello->listen.admit)
		rc = hello->listen.admit(hello->listen.context,
					 hello->peer.identity);
	if (rc == 0 && hello->admit)
		rc = hello->admit(hello->context, &hello->peer);
	return rc < 0 ? rc : send_welcome(hello);
}

/* --- both --- */

static int on_frame(struct reef_hello *hello, const struct reef_frame *frame)
{
	static const struct {
		uint8_t type;
		int (*fn)(struct reef_hello *hello,
			  const struct reef_frame *frame);
	} expected[] = {
		[AWAIT_HELLO] = {REEF_FRAME_HELLO, on_hello},
		[AWAIT_CHALLENGE] = {REEF_FRAME_CHALLENGE, on_challenge},
		[AWAIT_PROOF] = {REEF_FRAME_PROOF, on_proof},
		[AWAIT_WELCOME] = {REEF_FRAME_WELCOME, on_welcome},
	};

	if (frame->fd >= 0) {
		close(frame->fd);
		return -REEF_EPROTO;
	}
	/* The transcript has headers with tag 0. */
	if (frame->type != expected[hello->state].type || frame->tag != 0)
		return -REEF_EPROTO;
	return expected[hello->state].fn(hello, frame);
}

/* Go on with the handshake of TLS, and begin with the frames when it is done.
 */
static int secure_stream(struct reef_hello *hello)
{
	uint8_t binding[REEF_TLS_BINDING_SIZE];
	int rc = reef_tls_step(hello->tls);

	if (rc < 0)
		return rc;
	reef_tls_binding(hello->tls, binding);
	note_said(hello, binding, sizeof(binding));
	reef_tls_peer(hello->tls, &hello->peer.session, hello->peer.identity);
	reef_stream_set_tls(hello->stream, hello->tls);
	hello->tls = NULL;
	hello->is_secured = true;
	return hello->state == AWAIT_CHALLENGE ? send_hello(hello) : 0;
}

/* What is wrong with something that is no frame: it may be TLS. */
static int judge_garbage(const struct reef_hello *hello)
{
	const uint8_t *bytes;

	if (hello->state == AWAIT_HELLO && !hello->is_secured &&
	    reef_stream_peek(hello->stream, &bytes) >= 2 &&
	    reef_tls_looks_like(bytes))
		return -REEF_ETLS;
	return -REEF_EPROTO;
}

static int fail_hello(struct reef_hello *hello, int error)
{
	hello->state = FAILED;
	hello->error = error;
	return error;
}

int reef_hello_step(struct reef_hello *hello, struct reef_hello_peer *peer)
{
	struct reef_frame frame;
	int rc;

	if (hello->state == FAILED)
		return hello->error;
	if (hello->tls) {
		rc = secure_stream(hello);
		if (rc == -EAGAIN)
			return rc;
		if (rc == -REEF_ETLS)
			reef_stream_bye(hello->stream, rc);
		if (rc < 0)
			return fail_hello(hello, rc);
	}
	while (hello->state < FLUSHING) {
		rc = reef_stream_receive(hello->stream, &frame);
		if (rc == -EAGAIN) {
			reef_stream_flush(hello->stream);
			return rc;
		}
		if (rc == 0 && frame.type == REEF_FRAME_BYE && frame.fd < 0)
			return fail_hello(hello, reef_frame_bye_reason(&frame));
		if (rc == -REEF_EPROTO)
			rc = judge_garbage(hello);
		if (rc == 0)
			rc = on_frame(hello, &frame);
		if (rc < 0) {
			/* If so little output fills the socket, the peer is as
			 * good as gone. */
			if (rc == -EAGAIN)
				rc = -REEF_ENOLINK;
			if (rc != -REEF_ENOLINK)
				reef_stream_bye(hello->stream, rc);
			return fail_hello(hello, rc);
		}
	}
	if (hello->state == FLUSHING) {
		rc = reef_stream_flush(hello->stream);
		if (rc < 0)
			return rc == -EAGAIN ? rc : fail_hello(hello, rc);
		hello->state = WELCOMED;
	}
	reef_stream_welcome(hello->stream);
	*peer = hello->peer;
	return 0;
}

static struct reef_hello *hello_create(struct reef_stream *stream,
				       const struct reef_hello_local *local)
{
	struct reef_hello *hello = calloc(1, sizeof(*hello));

	if (!hello)
		return NULL;
	reef_assert(strlen(local->fabric) < sizeof(hello->fabric));
	hello->stream = stream;
	hello->local = *local;
	hello->said = LABEL_SIZE;
	memcpy(hello->fabric, local->fabric, strlen(local->fabric));
	return hello;
}

int reef_hello_connect(struct reef_stream *stream,
		       const struct reef_hello_local *local,
		       const struct reef_connect_options *options,
		       struct reef_hello **out)
{
	struct reef_hello *hello;
	int rc;

	if (!options->session || !options->identity ||
	    !reef_wire_identity_fits(options->identity))
		return -EINVAL;
	hello = hello_create(stream, local);
	if (!hello)
		return -ENOMEM;
	memcpy(hello->key, options->key, sizeof(hello->key));
	hello->peer.session = options->session;
	hello->peer.number = options->number;
	memcpy(hello->peer.identity, options->identity,
	       strlen(options->identity));
	hello->state = AWAIT_CHALLENGE;
	rc = local->tls ? reef_tls_connect(reef_stream_fd(stream), options,
					   &hello->tls)
			: send_hello(hello);
	if (rc < 0) {
		reef_hello_destroy(hello);
		return rc;
	}
	*out = hello;
	return 0;
}

int reef_hello_accept(struct reef_stream *stream,
		      const struct reef_hello_local *local,
		      const struct reef_listen_options *options,
		      int (*admit)(void *context, struct reef_hello_peer *peer),
		      void *context, struct reef_hello **out)
{
	struct reef_hello *hello = hello_create(stream, local);
	int rc = 0;

	if (!hello)
		return -ENOMEM;
	if (local->tls)
		rc = reef_tls_accept(reef_stream_fd(stream), options,
				     &hello->tls);
	if (rc < 0) {
		reef_hello_destroy(hello);
		return rc;
	}
	hello->listen = *options;
	hello->admit = admit;
	hello->context = context;
	hello->state = AWAIT_HELLO;
	*out = hello;
	return 0;
}

void reef_hello_destroy(struct reef_hello *hello)
{
	if (!hello)
		return;
	reef_tls_destroy(hello->tls);
	OPENSSL_cleanse(hello->key, sizeof(hello->key));
	free(hello);
}
