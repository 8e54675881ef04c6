/* tls.c - OpenSSL's TLS, moved by our own reads and writes.
 *
 *   connector:  create --step: ClientHello--> shaking --Finished--> up
 *   acceptor:   create -> first record awaited --SSL is made--> shaking -> up
 *
 *   send:     plain --SSL_write--> out (records) --> socket
 *   receive:  socket --> OpenSSL's buffer --SSL_read--> plain
 *   or, where the kernel has taken over (tls_kernel.h): both on the socket
 *
 * OpenSSL reaches the socket through a BIO of ours, for three reasons: its own
 * raises SIGPIPE; several records are to go out in one system call; and during
 * the handshake nothing may be read beyond the record that is asked for.
 */
#include "fabric/tls.h"

#include "base/random.h"
#include "fabric/fifo.h"
#include "fabric/tls_kernel.h"
#include "wire/hello.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define RECORD_HEADER 5
#define RECORDS_MAX 16 /* of the peer's, in a handshake */
#define PLAIN_MAX SSL3_RT_MAX_PLAIN_LENGTH
#define RECORD_MORE 64		 /* what a record has beyond its plain text */
#define OUT_ENOUGH (64u << 10)	 /* encrypt no further; send first */
#define OUT_MAX (OUT_ENOUGH * 2) /* only answers to key updates come on top */
#define OUT_KEEP (32u << 10)
#define REKEY_BYTES (UINT64_C(1) << 36)
#define PSK_SIZE 32
#define ALERTS SSL_AD_REASON_OFFSET /* reasons from here on: the peer's */

struct reef_tls {
	int fd;
	bool is_up;
	bool in_kernel; /* once up: ssl is NULL, the socket does it all */
	SSL *ssl;	/* acceptor: NULL before the first record */
	/* Of the handshake: */
	struct reef_fifo in; /* the record that is being read */
	uint32_t records;
	struct reef_listen_options listen; /* credential NULL: connector */
	struct reef_wire_psk peer;	   /* who connects */
	uint8_t identity[REEF_WIRE_PSK_SIZE];
	uint8_t psk[PSK_SIZE]; /* connector */
	struct tls_secrets secrets;
	uint8_t binding[REEF_TLS_BINDING_SIZE]; /* at its end */

	pthread_mutex_t lock;  /* once up: all that follows, and ssl */
	struct reef_fifo out;  /* records that wait for the socket */
	_Atomic size_t unsent; /* bytes of it, for who asks without lock */
	bool from_socket;      /* the BIO may read */
	bool took_all;	       /* its last read: there was no more */
	int input_error;       /* final; 0: none */
	uint64_t sealed, rekey_bytes;
};

/* --- the BIO --- */

static int read_bio(BIO *bio, char *bytes, int size)
{
	struct reef_tls *tls = BIO_get_data(bio);
	size_t there = reef_fifo_used(&tls->in);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (there) {
		if (there > (size_t)size)
			there = (size_t)size;
		memcpy(bytes, tls->in.bytes + tls->in.start, there);
		reef_fifo_take(&tls->in, there);
		return (int)there;
	}
	if (!tls->from_socket) {
		BIO_set_retry_read(bio);
		return -1;
	}
	do {
		n = recv(tls->fd, bytes, (size_t)size, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	tls->took_all = n < size;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		BIO_set_retry_read(bio);
	return (int)n;
}

static int write_bio(BIO *bio, const char *bytes, int size)
{
	struct reef_tls *tls = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	if (reef_fifo_reserve(&tls->out, (size_t)size, OUT_MAX) < 0)
		return -1;
	memcpy(tls->out.bytes + tls->out.end, bytes, (size_t)size);
	tls->out.end += (size_t)size;
	return size;
}

static long control_bio(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

/* --- what all connections share --- */

/* A program may end while threads of ours connect or encrypt. OpenSSL would
 * pull the ground from under them when the process exits, unless it is told
 * before anybody has used it that it need not clean up. */
__attribute__((constructor)) static void keep_openssl_until_the_end(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static pthread_once_t shared_once = PTHREAD_ONCE_INIT;
static SSL_CTX *shared_context; /* NULL: there is no memory for it */
static BIO_METHOD *shared_method;

static void note_secret(const SSL *ssl, const char *line)
{
	struct reef_tls *tls = SSL_get_app_data(ssl);

	tls_kernel_note(&tls->secrets, line);
}

static SSL_CTX *make_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	const char *suites = "TLS_AES_128_GCM_SHA256:"
			     "TLS_CHACHA20_POLY1305_SHA256";

	if (!context)
		return NULL;
	if (tls_kernel_is_there()) {
		SSL_CTX_set_keylog_callback(context, note_secret);
		suites = "TLS_CHACHA20_POLY1305_SHA256:"
			 "TLS_AES_128_GCM_SHA256";
	}
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
					     SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
					       SSL_OP_ALLOW_NO_DHE_KEX);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_quiet_shutdown(context, 1);
	SSL_CTX_set_max_early_data(context, 0);
	SSL_CTX_set_recv_max_early_data(context, 0);
	if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) &&
	    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) &&
	    SSL_CTX_set_ciphersuites(context, suites) &&
	    SSL_CTX_set1_groups_list(context, "X25519:P-256") &&
	    SSL_CTX_set_num_tickets(context, 0))
		return context;
	SSL_CTX_free(context);
	return NULL;
}

static void make_shared(void)
{
	shared_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
				     "reef");
	if (!shared_method || !BIO_meth_set_read(shared_method, read_bio) ||
	    !BIO_meth_set_write(shared_method, write_bio) ||
	    !BIO_meth_set_ctrl(shared_method, control_bio))
		return;
	shared_context = make_context();
	ERR_clear_error();
}

/* --- keys --- */

static int derive_psk(const uint8_t key[REEF_KEY_SIZE],
		      const uint8_t identity[REEF_WIRE_PSK_SIZE],
		      uint8_t psk[PSK_SIZE])
{
	/* As long as the labels of the hello's proofs, and none of them. */
	uint8_t said[16 + REEF_WIRE_PSK_SIZE] = "reef tls psk";
	unsigned int size = 0;

	memcpy(said + 16, identity, REEF_WIRE_PSK_SIZE);
	if (!HMAC(EVP_sha256(), key, REEF_KEY_SIZE, said, sizeof(said), psk,
		  &size) ||
	    size != PSK_SIZE)
		return -ENOMEM;
	return 0;
}

/* What OpenSSL calls an external PSK: a session that never was. */
static SSL_SESSION *make_session(SSL *ssl, const uint8_t psk[PSK_SIZE])
{
	static const uint8_t suite[2] = {0x13, 0x01}; /* any with SHA-256 */
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher &&
	    SSL_SESSION_set1_master_key(session, psk, PSK_SIZE) &&
	    SSL_SESSION_set_cipher(session, cipher) &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int use_psk(SSL *ssl, const EVP_MD *digest,
		   const unsigned char **identity, size_t *size,
		   SSL_SESSION **session)
{
	struct reef_tls *tls = SSL_get_app_data(ssl);

	(void)digest; /* every suite that we offer has the same */
	*session = make_session(ssl, tls->psk);
	*identity = tls->identity;
	*size = sizeof(tls->identity);
	return *session != NULL;
}

static int find_psk(SSL *ssl, const unsigned char *identity, size_t size,
		    SSL_SESSION **session)
{
	struct reef_tls *tls = SSL_get_app_data(ssl);
	uint8_t key[REEF_KEY_SIZE], psk[PSK_SIZE];
	int rc = reef_wire_psk_decode(identity, size, &tls->peer);

	*session = NULL;
	if (rc == 0)
		rc = tls->listen.credential(tls->listen.context,
					    tls->peer.identity,
					    tls->peer.session, key);
	if (rc == 0)
		rc = derive_psk(key, identity, psk);
	/* A refused identity goes on with a key that nobody has (3). */
	if (rc < 0)
		rc = reef_random_secret(psk, sizeof(psk));
	if (rc == 0)
		*session = make_session(ssl, psk);
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(psk, sizeof(psk));
	return *session != NULL;
}

/* --- making --- */

static int make_ssl(struct reef_tls *tls)
{
	BIO *bio;

	tls->ssl = SSL_new(shared_context);
	bio = BIO_new(shared_method);
	if (!tls->ssl || !bio) {
		BIO_free(bio);
		return -ENOMEM;
	}
	BIO_set_data(bio, tls);
	BIO_set_init(bio, 1);
	SSL_set_bio(tls->ssl, bio, bio); /* owns it now */
	SSL_set_app_data(tls->ssl, tls);
	if (tls->listen.credential) {
		SSL_set_psk_find_session_callback(tls->ssl, find_psk);
		SSL_set_accept_state(tls->ssl);
	} else {
		SSL_set_psk_use_session_callback(tls->ssl, use_psk);
		/* A server that does not take the PSK would have to show a
		 * certificate, and there is none that we would believe. */
		SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL);
		SSL_set_connect_state(tls->ssl);
	}
	return 0;
}

static int create_tls(int fd, struct reef_tls **out)
{
	struct reef_tls *tls;

	pthread_once(&shared_once, make_shared);
	tls = shared_context ? calloc(1, sizeof(*tls)) : NULL;
	if (!tls)
		return -ENOMEM;
	tls->fd = fd;
	tls->rekey_bytes = REKEY_BYTES;
	pthread_mutex_init(&tls->lock, NULL);
	*out = tls;
	return 0;
}

int reef_tls_connect(int fd, const struct reef_connect_options *options,
		     struct reef_tls **out)
{
	struct reef_tls *tls;
	int rc = create_tls(fd, &tls);

	if (rc < 0)
		return rc;
	tls->peer.session = options->session;
	memcpy(tls->peer.identity, options->identity,
	       strlen(options->identity));
	reef_wire_psk_encode(&tls->peer, tls->identity);
	rc = derive_psk(options->key, tls->identity, tls->psk);
	if (rc == 0)
		rc = make_ssl(tls);
	if (rc < 0) {
		reef_tls_destroy(tls);
		return rc;
	}
	*out = tls;
	return 0;
}

int reef_tls_accept(int fd, const struct reef_listen_options *options,
		    struct reef_tls **out)
{
	struct reef_tls *tls;
	int rc = create_tls(fd, &tls);

	if (rc < 0)
		return rc;
	tls->listen = *options;
	*out = tls;
	return 0;
}

static void wipe_secrets(struct reef_tls *tls)
{
	OPENSSL_cleanse(tls->psk, sizeof(tls->psk));
	OPENSSL_cleanse(&tls->secrets, sizeof(tls->secrets));
}

void reef_tls_destroy(struct reef_tls *tls)
{
	if (!tls)
		return;
	SSL_free(tls->ssl);
	free(tls->in.bytes);
	free(tls->out.bytes);
	wipe_secrets(tls);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
}

void reef_tls_set_rekey(struct reef_tls *tls, uint64_t bytes)
{
	tls->rekey_bytes = bytes;
}

/* --- output --- */

/* Put records into the socket.  -EAGAIN: it is full.  -REEF_ENOLINK. */
static int flush_out(struct reef_tls *tls)
{
	ssize_t n;

	while (reef_fifo_used(&tls->out)) {
		n = send(tls->fd, tls->out.bytes + tls->out.start,
			 reef_fifo_used(&tls->out),
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0)
			reef_fifo_take(&tls->out, (size_t)n);
		else if (errno == EAGAIN || errno == EWOULDBLOCK ||
			 errno == ENOBUFS)
			return -EAGAIN;
		else if (errno != EINTR)
			return -REEF_ENOLINK;
	}
	reef_fifo_trim(&tls->out, OUT_KEEP);
	return 0;
}

/* Encrypt more of a part, up to what out is to hold. Returns how much. */
static ssize_t seal_part(struct reef_tls *tls, const struct iovec *part)
{
	size_t done = 0, size;
	int n;

	while (done < part->iov_len && reef_fifo_used(&tls->out) < OUT_ENOUGH) {
		if (tls->sealed >= tls->rekey_bytes) {
			if (!SSL_key_update(tls->ssl,
					    SSL_KEY_UPDATE_NOT_REQUESTED))
				return -REEF_ENOLINK;
			tls->sealed = 0;
		}
		size = part->iov_len - done;
		if (size > PLAIN_MAX)
			size = PLAIN_MAX;
		n = SSL_write(tls->ssl, (uint8_t *)part->iov_base + done,
			      (int)size);
		if (n <= 0)
			return -REEF_ENOLINK;
		tls->sealed += (size_t)n + RECORD_MORE;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t send_in_kernel(struct reef_tls *tls, const struct iovec *parts,
			      int count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)parts,
				 .msg_iovlen = (size_t)count};
	ssize_t n;

	do {
		n = sendmsg(tls->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS
		       ? -EAGAIN
		       : -REEF_ENOLINK;
}

ssize_t reef_tls_send(struct reef_tls *tls, const struct iovec *parts,
		      int count)
{
	ssize_t taken = 0, n;
	int rc;

	if (tls->in_kernel)
		return send_in_kernel(tls, parts, count);
	pthread_mutex_lock(&tls->lock);
	ERR_clear_error();
	rc = flush_out(tls);
	for (int i = 0; rc == 0 && i < count; i++) {
		n = seal_part(tls, &parts[i]);
		if (n < 0)
			rc = (int)n;
		else
			taken += n;
		if (n != (ssize_t)parts[i].iov_len)
			break;
	}
	if (rc == 0) {
		rc = flush_out(tls);
		/* What could not go out is kept. */
		if (rc == -EAGAIN)
			rc = 0;
	}
	atomic_store(&tls->unsent, reef_fifo_used(&tls->out));
	pthread_mutex_unlock(&tls->lock);
	return rc < 0 ? rc : taken;
}

size_t reef_tls_unsent(const struct reef_tls *tls)
{
	return atomic_load(&tls->unsent);
}

/* --- input --- */

/* Why SSL_read gave nothing. */
static int read_error(struct reef_tls *tls, int n)
{
	switch (SSL_get_error(tls->ssl, n)) {
	case SSL_ERROR_WANT_READ:
		return -EAGAIN;
	case SSL_ERROR_SSL:
		/* OpenSSL calls the end of the stream an error of TLS, unless
		 * close_notify came first (8). */
		return ERR_GET_REASON(ERR_peek_error()) ==
				       SSL_R_UNEXPECTED_EOF_WHILE_READING
			       ? -REEF_ENOLINK
			       : -REEF_EPROTO;
	default:
		return -REEF_ENOLINK;
	}
}

/* Decrypt into a part until it is full. Returns how much; *rc: why no more. */
static size_t open_part(struct reef_tls *tls, const struct iovec *part, int *rc)
{
	size_t done = 0, size;
	int n;

	while (done < part->iov_len) {
		/* A read that was short need not be followed by another. */
		if (done && tls->took_all && !SSL_has_pending(tls->ssl)) {
			*rc = -EAGAIN;
			break;
		}
		size = part->iov_len - done;
		if (size > INT32_MAX)
			size = INT32_MAX;
		n = SSL_read(tls->ssl, (uint8_t *)part->iov_base + done,
			     (int)size);
		if (n <= 0) {
			*rc = read_error(tls, n);
			break;
		}
		done += (size_t)n;
	}
	return done;
}

static ssize_t receive_in_kernel(struct reef_tls *tls,
				 const struct iovec *parts, int count,
				 bool *drained)
{
	struct msghdr message = {.msg_iov = (struct iovec *)parts,
				 .msg_iovlen = (size_t)count};
	size_t most = 0;
	ssize_t n;

	do {
		n = recvmsg(tls->fd, &message, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	for (int i = 0; i < count; i++)
		most += parts[i].iov_len;
	*drained = n < 0 ? errno == EAGAIN || errno == EWOULDBLOCK
			 : (size_t)n < most;
	if (n > 0)
		return n;
	if (n < 0 && *drained)
		return -EAGAIN;
	/* A record that is no data (there is none in this protocol): EIO. */
	return n < 0 && (errno == EBADMSG || errno == EIO || errno == EINVAL ||
			 errno == EMSGSIZE)
		       ? -REEF_EPROTO
		       : -REEF_ENOLINK;
}

ssize_t reef_tls_receive(struct reef_tls *tls, const struct iovec *parts,
			 int count, bool from_socket, bool *drained)
{
	size_t got = 0;
	int rc;

	if (tls->in_kernel) {
		*drained = true;
		return from_socket
			       ? receive_in_kernel(tls, parts, count, drained)
			       : -EAGAIN;
	}
	pthread_mutex_lock(&tls->lock);
	rc = tls->input_error;
	ERR_clear_error();
	tls->from_socket = from_socket;
	for (int i = 0; rc == 0 && i < count; i++)
		got += open_part(tls, &parts[i], &rc);
	tls->from_socket = false;
	if (rc < 0 && rc != -EAGAIN)
		tls->input_error = rc;
	if (reef_fifo_used(&tls->out))
		atomic_store(&tls->unsent, reef_fifo_used(&tls->out));
	pthread_mutex_unlock(&tls->lock);
	*drained = rc == -EAGAIN;
	return got ? (ssize_t)got : rc;
}

bool reef_tls_has_more(struct reef_tls *tls)
{
	bool has_more;

	if (tls->in_kernel)
		return false;
	pthread_mutex_lock(&tls->lock);
	has_more = SSL_has_pending(tls->ssl);
	pthread_mutex_unlock(&tls->lock);
	return has_more;
}

/* --- the handshake --- */

/* Read up to `size` bytes of a record in all, and not one more.  -EAGAIN. */
static int read_up_to(struct reef_tls *tls, size_t size)
{
	struct reef_fifo *in = &tls->in;
	ssize_t n;

	while (reef_fifo_used(in) < size) {
		if (reef_fifo_reserve(in, size - reef_fifo_used(in),
				      REEF_TLS_RECORD_MAX) < 0)
			return -ENOMEM;
		n = recv(tls->fd, in->bytes + in->end,
			 size - reef_fifo_used(in), MSG_DONTWAIT);
		if (n > 0)
			in->end += (size_t)n;
		else if (n == 0 || (errno != EINTR && errno != EAGAIN &&
				    errno != EWOULDBLOCK))
			return -REEF_ENOLINK;
		else if (errno != EINTR)
			return -EAGAIN;
	}
	return 0;
}

/* A frame begins with its length, and a hello's is not that long. */
bool reef_tls_looks_like(const uint8_t bytes[2])
{
	return bytes[0] >= SSL3_RT_CHANGE_CIPHER_SPEC &&
	       bytes[0] <= SSL3_RT_APPLICATION_DATA &&
	       bytes[1] == SSL3_VERSION_MAJOR;
}

/* Read the peer's next record.  0: it is in `in`. */
static int read_record(struct reef_tls *tls)
{
	const uint8_t *header;
	uint8_t rest[REEF_TLS_RECORD_MAX];
	size_t size;
	int rc = read_up_to(tls, RECORD_HEADER);

	if (rc < 0)
		return rc;
	header = tls->in.bytes + tls->in.start;
	if (!reef_tls_looks_like(header)) {
		/* Closing with unread input would be a reset, and the peer
		 * might not read what it is told. */
		if (recv(tls->fd, rest, sizeof(rest), MSG_DONTWAIT) < 0)
			return -REEF_ETLS;
		return -REEF_ETLS;
	}
	size = RECORD_HEADER + ((size_t)header[3] << 8 | header[4]);
	if (size > REEF_TLS_RECORD_MAX)
		return -REEF_EPROTO;
	rc = read_up_to(tls, size);
	if (rc == 0 && ++tls->records > RECORDS_MAX)
		return -REEF_EPROTO;
	return rc;
}

/* Why the handshake failed. */
static int handshake_error(void)
{
	int reason = ERR_GET_REASON(ERR_peek_error());

	switch (reason) {
	case SSL_R_BINDER_DOES_NOT_VERIFY:
	case SSL_R_BAD_PSK:
	case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
	case SSL_R_DIGEST_CHECK_FAILED:
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
	case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
	case ALERTS + SSL_AD_ILLEGAL_PARAMETER:
	case ALERTS + SSL_AD_BAD_RECORD_MAC:
	case ALERTS + SSL_AD_DECRYPT_ERROR:
	case ALERTS + SSL_AD_HANDSHAKE_FAILURE:
	case ALERTS + SSL_AD_UNKNOWN_PSK_IDENTITY:
		return -REEF_EAUTH;
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
		return -REEF_EVERSION;
	default:
		return -REEF_EPROTO;
	}
}

/* 0: done.  -EAGAIN: a record is needed.  Else why it failed. */
static int shake_hands(struct reef_tls *tls)
{
	int n, rc;

	ERR_clear_error();
	n = SSL_do_handshake(tls->ssl);
	if (n == 1)
		rc = 0;
	else if (SSL_get_error(tls->ssl, n) == SSL_ERROR_WANT_READ)
		rc = -EAGAIN;
	else
		rc = handshake_error();
	ERR_clear_error();
	if (rc == 0 && (SSL_version(tls->ssl) != TLS1_3_VERSION ||
			!SSL_session_reused(tls->ssl)))
		rc = -REEF_EAUTH; /* without our PSK it is worth nothing */
	return rc;
}

/* Let the kernel go on, if it can and the suite is its (tls_kernel.h).
 * 0: it does, or OpenSSL does. */
static int move_to_kernel(struct reef_tls *tls)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(tls->ssl);
	int rc;

	if (SSL_CIPHER_get_protocol_id(cipher) !=
	    (TLS1_3_CK_CHACHA20_POLY1305_SHA256 & 0xffff))
		return 0;
	/* The other side may be a kernel, which cannot change its key. */
	tls->rekey_bytes = UINT64_MAX;
	/* What is kept was encrypted already. */
	if (!tls_kernel_is_there() || reef_fifo_used(&tls->out))
		return 0;
	rc = tls_kernel_start(tls->fd, !tls->listen.credential, &tls->secrets);
	if (rc == -ENOTSUP)
		return 0;
	if (rc < 0)
		return rc;
	SSL_free(tls->ssl);
	tls->ssl = NULL;
	tls->in_kernel = true;
	return 0;
}

static int end_handshake(struct reef_tls *tls)
{
	static const char label[] = "EXPORTER-reef-hello";
	int rc;

	if (SSL_export_keying_material(tls->ssl, tls->binding,
				       sizeof(tls->binding), label,
				       sizeof(label) - 1, NULL, 0, 0) != 1)
		return -ENOMEM;
	rc = move_to_kernel(tls);
	wipe_secrets(tls);
	free(tls->in.bytes);
	tls->in = (struct reef_fifo){0};
	/* From here on one system call may bring several records. */
	if (tls->ssl)
		SSL_set_read_ahead(tls->ssl, 1);
	tls->is_up = rc == 0;
	return rc;
}

int reef_tls_step(struct reef_tls *tls)
{
	int rc = 0, sent;

	if (tls->is_up)
		return 0;
	if (!tls->ssl) {
		rc = read_record(tls);
		if (rc == 0)
			rc = make_ssl(tls);
	}
	while (rc == 0) {
		rc = shake_hands(tls);
		/* Also if it failed: there is an alert to be sent. */
		sent = flush_out(tls);
		if (sent < 0 && sent != -EAGAIN && rc == 0)
			rc = sent;
		if (rc != -EAGAIN)
			break;
		rc = read_record(tls);
	}
	atomic_store(&tls->unsent, reef_fifo_used(&tls->out));
	/* OpenSSL has asked for each record, so it has taken them all. */
	if (rc == 0 && reef_fifo_used(&tls->in))
		rc = -REEF_EPROTO;
	return rc ? rc : end_handshake(tls);
}

void reef_tls_binding(const struct reef_tls *tls,
		      uint8_t binding[REEF_TLS_BINDING_SIZE])
{
	memcpy(binding, tls->binding, sizeof(tls->binding));
}

void reef_tls_peer(const struct reef_tls *tls, uint32_t *session,
		   char identity[REEF_IDENTITY_MAX + 1])
{
	*session = tls->peer.session;
	memcpy(identity, tls->peer.identity, sizeof(tls->peer.identity));
}
