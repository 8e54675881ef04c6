/* error.h - Reef's own error codes.
 *
 * Calls return 0 (or a count) or a negative code: -errno, or one of these,
 * which stand above errno's range so that the two never meet. The list is the
 * only place where a code and its text are defined.
 *
 * Thread: any. */
#ifndef REEF_ERROR_H
#define REEF_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define REEF_API __attribute__((visibility("default")))
#else
#define REEF_API
#endif

/* X(name, number, text) */
#define REEF_ERRORS(X)                                                         \
	X(REEF_EINDOUBT, 5001,                                                 \
	  "connection lost: the operation may have happened or may still "     \
	  "happen")                                                            \
	X(REEF_ENOLINK, 5002, "not connected: the operation did not happen")   \
	X(REEF_ENOTDONE, 5003,                                                 \
	  "not done: an earlier operation of the batch failed")                \
	X(REEF_EKEY, 5004, "no memory under this key, or it was withdrawn")    \
	X(REEF_EFENCED, 5005,                                                  \
	  "the session is fenced: it may not act here any more")               \
	X(REEF_EDOMAIN, 5006, "the memory belongs to another atomic domain")   \
	X(REEF_EFORKED, 5007, "this handle belongs to the parent process")     \
	X(REEF_EAUTH, 5008, "the peer could not prove that it holds the key")  \
	X(REEF_EVERSION, 5009, "no common version of the protocol")            \
	X(REEF_EPROTO, 5010, "the peer sent something malformed")              \
	X(REEF_ENOTDURABLE, 5011, "this memory has no durable backing")        \
	X(REEF_EHOSTDEAD, 5012, "this simulated host was killed")              \
	X(REEF_ENOCAP, 5013, "this fabric does not have that capability")      \
	X(REEF_ECORRUPT, 5014, "a checksum does not match")                    \
	X(REEF_ELOST, 5015,                                                    \
	  "the memory is gone: its node died, or its owner took it back")      \
	X(REEF_EMEMBER, 5016, "a member of the group died")                    \
	X(REEF_EDROPPED, 5017, "it was dropped")                               \
	X(REEF_ETLS, 5018, "one side wants TLS and the other does not")        \
	X(REEF_EFOREIGN, 5019, "the memory is that of another pool")           \
	X(REEF_EOLDER, 5020,                                                   \
	  "the broker's journal is older than what nodes have")

enum reef_error {
#define X(name, number, text) name = (number),
	REEF_ERRORS(X)
#undef X
};

/* The text of a code returned by any call here: Reef's own or errno's, either
 * sign; of EDQUOT what it means here. Never NULL; static storage. */
REEF_API const char *reef_error_text(int code);

/* The name of a code, "REEF_EKEY" or "EINVAL"; "unknown" if there is none. */
REEF_API const char *reef_error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
