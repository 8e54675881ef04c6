"""More requests for a redis-server and the door, in the notation of
redis_scripts.py: options in odd places, numbers at the ends of their ranges,
states that nobody means to be in.
"""

ODD = {
    "deadlines": r'''
        SET k v EX 10 EX 20
        < TTL k
        SET k v PX 10000 PX 20000
        SET k v NX GET XX
        SET k v GET GET
        SET k v KEEPTTL KEEPTTL
        SET k v GET NX EX 100
        < TTL k
        SET k v XX XX
        SET k v EX 10 NX GET KEEPTTL
        SET k v nx ex
        SET k v EX ""
        SET k v EX " 10"
        SET k v EX +10
        SET k v EX 010
        SET k v EX 1e3
        SET k v PXAT -1
        SET k v EX -9223372036854775808
        SET k v EXAT 9223372036854776
        SET k v EXAT 9223372036854775
        GET k
        EXPIRETIME k
        SET k v "EX " 10
        SET k v ""
        SET k v EXX 10
        SET k v GET PERSIST
        SET "a\r\nb" v
        GET "a\r\nb"
        SET k v "FOO\r\nBAR"
        EXPIRE k 10 "FOO\r\nBAR"
        EXPIRE k 10 ""
        EXPIRE k 10 NX NX
        EXPIRE k 10 XX XX
        EXPIRE k 5 LT LT
        EXPIRE k 10 XX GT LT
        EXPIRE k 10 XX NX FOO
        EXPIRE k x FOO
        EXPIRE k x NX XX
        EXPIRE nothere x
        EXPIRE nothere 10 FOO
        EXPIRE k 10 NX 10
        EXPIRE k "10 "
        EXPIRE k -0
        EXPIRE k +5
        PEXPIRE k 9223372036854775807 NX
        PEXPIRE k -9223372036854775808
        EXISTS k
        SET k v
        PEXPIREAT k -9223372036854775808
        EXISTS k
        SET k v
        EXPIREAT k -9223372036854775808
        EXPIREAT k -9223372036854775
        EXISTS k
        SET k v
        PEXPIREAT k 0
        EXISTS k
        SET k v
        EXPIREAT k 0 XX
        EXISTS k
        EXPIREAT k 0 GT
        EXISTS k
        EXPIREAT k 0 LT
        EXISTS k
        SET k v EXAT 33177117420
        EXPIREAT k 33177117420 GT
        EXPIREAT k 33177117420 LT
        EXPIREAT k 33177117421 XX GT
        EXPIREAT k 33177117420 XX LT
        PEXPIREAT k 33177117420000 XX
        GETEX k EX 10 EX 20
        GETEX k PERSIST PERSIST
        GETEX k EX
        GETEX k EXAT 33177117420 EXAT 33177117421
        EXPIRETIME k
        GETEX k PXAT 33177117420 PERSIST
        GETEX k GET
        GETEX k XX
        GETEX k ""
        GETEX k PX 9223372036854775807
        GETEX k EX 9223372036854775807
        GETEX k PXAT 9223372036854775807
        PEXPIRETIME k
        EXPIRETIME k
        TTL k
        PERSIST k
        GETEX k PXAT 1
        GETEX k
        SET k v PXAT 9223372036854775807
        TTL k
        < PTTL k
        PEXPIRETIME k
        EXPIRETIME k
        EXPIRE k 100 GT
        EXPIRE k 100 LT
        SETEX k "" v
        SETEX k 1.0 v
        SETEX k 9223372036854775 v
        SETEX k 92233720368547758 v
        PSETEX k 9223372036854775000 v
        GETSET k ""
        GETSET "" x
        GETDEL ""
        SETNX "" ""
        GET ""
        STRLEN ""
    ''',
    "ranges": r'''
        SET a 0123456789
        GETRANGE a 0 0
        GETRANGE a 9 9
        GETRANGE a 10 10
        GETRANGE a -1 -1
        GETRANGE a -10 -10
        GETRANGE a -11 -11
        GETRANGE a -11 0
        GETRANGE a 3 -20
        GETRANGE a -20 -10
        GETRANGE a 0 -10
        GETRANGE a 0 -11
        GETRANGE a 9223372036854775807 9223372036854775807
        GETRANGE a 9223372036854775808 1
        GETRANGE a -9223372036854775808 -9223372036854775808
        GETRANGE a -9223372036854775809 1
        GETRANGE a 1 -9223372036854775808
        GETRANGE a "" 1
        GETRANGE nothere x y
        GETRANGE nothere 1 y
        SET e ""
        GETRANGE e 0 -1
        GETRANGE e 0 0
        GETRANGE e -1 -1
        SETRANGE e 0 ""
        SETRANGE nothere 0 ""
        SETRANGE nothere -1 ""
        SETRANGE nothere 99999999999 ""
        SETRANGE e 99999999999 ""
        SETRANGE e 0 x
        SETRANGE e 9223372036854775806 xx
        SETRANGE e 9223372036854775807 ""
        SETRANGE nothere x ""
        SETRANGE a 10 x
        SETRANGE a 11 "\x00"
        GET a
        SET n 5
        GETRANGE n 0 -1
        GETRANGE n 1 5
        SETRANGE n 0 6
        INCR n
        APPEND n ""
        GET n
        APPEND "" ""
        EXISTS ""
        APPEND "" x
        GET ""
    ''',
    "numbers": r'''
        SET f 1
        INCRBYFLOAT f 0.00000000000000001
        INCRBYFLOAT f 1e17
        INCRBYFLOAT f 1e-17
        SET f 0
        INCRBYFLOAT f -0
        INCRBYFLOAT f -0.0
        INCRBYFLOAT f 0x10
        INCRBYFLOAT f 0x1p3
        INCRBYFLOAT f 1e
        INCRBYFLOAT f 1e5
        INCRBYFLOAT f +1
        INCRBYFLOAT f .5
        INCRBYFLOAT f 5.
        INCRBYFLOAT f "1\x00"
        INCRBYFLOAT f "1 "
        INCRBYFLOAT f "\t1"
        INCRBYFLOAT f infinity
        INCRBYFLOAT f -Infinity
        INCRBYFLOAT f NaN
        INCRBYFLOAT f 1e4932
        INCRBYFLOAT f 1e4931
        INCRBYFLOAT f -1e4931
        INCRBYFLOAT f 1e5000
        INCRBYFLOAT f 1e-5000
        INCRBYFLOAT f 1e-4950
        SET f inf
        INCRBYFLOAT f 1
        INCRBYFLOAT f -inf
        SET f -inf
        INCRBYFLOAT f inf
        SET f 1.18973149535723176e4932
        INCRBYFLOAT f 1.18973149535723176e4932
        SET f 1e308
        INCRBYFLOAT f 1e308
        SET f 3.141592653589793238462643383279
        INCRBYFLOAT f 0
        SET f 123456789012345678901234567890
        INCRBYFLOAT f 1
        SET f 0.1
        INCRBYFLOAT f -0.1
        SET f 1e-18
        INCRBYFLOAT f 1e-18
        SET f -1e-18
        INCRBYFLOAT f 0
        SET f 4503599627370497.5
        INCRBYFLOAT f 0.1
        SET f 100
        INCRBYFLOAT f 0
        SET f 10
        INCRBYFLOAT f -10
        INCRBYFLOAT new -1.5
        INCRBYFLOAT new x
        INCRBYFLOAT f x
        SET s abc
        INCRBYFLOAT s x
        SET f " 1"
        INCRBYFLOAT f 1
        SET f 1
        INCRBYFLOAT f 1
        INCR f
        SET i -9223372036854775808
        INCRBY i -1
        DECRBY i -1
        INCRBY i 9223372036854775807
        INCRBY i -9223372036854775808
        DECRBY i 9223372036854775807
        INCRBY i 00
        INCRBY i -
        INCRBY i --1
        INCRBY i -01
        INCRBY i 1x
        INCRBY i "1\x00"
        INCRBY i -9223372036854775809
        DECRBY i 9223372036854775808
        DECRBY i -9223372036854775809
        DECRBY x -9223372036854775808
        SET i 92233720368547758070
        INCR i
        SET i -
        INCR i
        SET i -1
        INCR i
        DECR i
        SET i "1\x00"
        INCR i
    ''',
    "rename_copy": r'''
        SET a 1
        COPY a b DB 0 DB 1
        COPY a b REPLACE REPLACE
        COPY a b replace db 0
        COPY a a REPLACE
        COPY a a DB 0 REPLACE
        COPY a a DB 1 DB 0
        COPY a a DB 1
        COPY nothere nothere
        COPY nothere x DB 99
        COPY nothere x FOO
        COPY a b DB 99999999999
        COPY a b DB 9223372036854775808
        COPY a b DB ""
        COPY a b REPLACE DB
        COPY a b DB 15
        COPY a b DB 16
        COPY a b DB "1 "
        RENAME a ""
        RENAME "" a
        RENAMENX a a
        RENAMENX nothere nothere
        RENAME nothere x
        SET t 1 EX 100
        RENAMENX t t2
        < TTL t2
        SET u 1
        RENAME u t2
        TTL t2
        SET z 1 EX 100
        COPY z t2 REPLACE
        < TTL t2
        COPY u t2 REPLACE
    ''',
    "patterns": r'''
        MSET a 1 b 2 c 3 ab 4 "" 5
        SCAN 0 COUNT 100 MATCH ""
        SCAN 0 COUNT 100 MATCH "?" TYPE none
        SCAN 0 COUNT 9223372036854775807 MATCH nothing
        SCAN 0 COUNT 9223372036854775808
        SCAN 0 COUNT 100 TYPE STRING MATCH ab
        SCAN 0 COUNT 100 TYPE stringx MATCH ab
        SCAN 0 TYPE string TYPE list COUNT 100
        SCAN 0 MATCH a MATCH b COUNT 100
        SCAN -1 MATCH nothing COUNT 1000
        SCAN "" MATCH nothing COUNT 1000
        SCAN " 0"
        SCAN "0 "
        SCAN 0x0
        SCAN -
        SCAN +0 MATCH nothing COUNT 1000
        SCAN 18446744073709551615 MATCH nothing COUNT 10000
        SCAN -18446744073709551615 MATCH nothing COUNT 10000
        SCAN -18446744073709551616
        SCAN 0 COUNT 10 FOO
        SCAN 0 MATCH a COUNT x
        SCAN 0 COUNT 1.5
        SCAN x FOO
        SCAN 0 NOVALUES
        KEYS "a\x00*"
        ~ KEYS [a-]
        ~ KEYS [^a]
        ~ KEYS [\\a]
        ~ KEYS []
        ~ KEYS [^]
        ~ KEYS *[
        ~ KEYS a[b
        ~ KEYS \\a
        ~ KEYS \\
        ~ KEYS *?
        ~ KEYS ?*
        ~ KEYS a?*
        ~ KEYS a*?b
        ~ KEYS [a-b-c]
        ~ KEYS [b-a]b
        DBSIZE
    ''',
    "objects": r'''
        OBJECT ENCODING
        OBJECT REFCOUNT k
        SET k 10
        OBJECT REFCOUNT k
        SET k 9999
        OBJECT REFCOUNT k
        SET k 10000
        OBJECT REFCOUNT k
        SET k abc
        OBJECT REFCOUNT k
        OBJECT REFCOUNT
        OBJECT REFCOUNT k k
        OBJECT FREQ
        OBJECT FREQ k k
        OBJECT IDLETIME k k
        OBJECT IDLETIME
        OBJECT "" k
        OBJECT HELP x
        MEMORY USAGE k SAMPLES 0 SAMPLES x
        MEMORY USAGE nothere SAMPLES x
        MEMORY USAGE nothere SAMPLES -5
        MEMORY USAGE nothere FOO
        ? MEMORY USAGE k SAMPLES 0
        ? MEMORY USAGE k samples 9223372036854775807
        MEMORY USAGE k SAMPLES 9223372036854775808
        MEMORY USAGE k SAMPLES 1 FOO
        MEMORY HELP x
        MEMORY ""
    ''',
    "transactions": r'''
        MULTI
        SELECT 99
        SELECT x
        SET k v
        EXEC
        MULTI
        SELECT
        EXEC
        MULTI
        SELECT 3
        SET k three
        EXEC
        GET k
        SELECT 0
        GET k
        MULTI
        QUEUED
        GET k
        EXEC
        MULTI
        SET k
        WATCH k
        DISCARD
        EXEC
        WATCH
        DISCARD
        UNWATCH x
        MULTI
        WATCH
        EXEC
        MULTI
        MULTI x
        EXEC
        MULTI
        MULTI
        SET k v2
        EXEC
        GET k
        MULTI
        SET k v3
        DISCARD
        DISCARD
        GET k
        MULTI
        CONFIG GET timeout
        CONFIG RESETSTAT
        INFO nosuch
        MEMORY USAGE nothere
        COMMAND INFO nosuch
        CLIENT SETNAME x
        CLIENT GETNAME
        EXEC
        MULTI
        RESET
        GET k
        EXEC
        CLIENT GETNAME
        MULTI
        AUTH a b c
        EXEC
        MULTI
        HELLO 9
        HELLO 3 AUTH
        EXEC
        PING
        MULTI
        EXPIRE k x
        EXPIRE k 10 NX XX
        INCR nothere2
        GETEX k EX 0
        SETRANGE k -1 x
        COPY k k
        RENAME nothere x
        EXEC
        MULTI
        PING a b
        EXEC
        MULTI
        ECHO
        EXEC
        WATCH k
        MULTI
        SET k 1
        SET k 2
        SET k 3
        EXEC
        GET k
        WATCH k
        GET k
        APPEND k x
        MULTI
        GET k
        EXEC
        WATCH k k k
        MULTI
        GET k
        EXEC
        WATCH k
        SELECT 1
        SET k other
        MULTI
        GET k
        EXEC
        SELECT 0
        WATCH k
        SELECT 1
        MULTI
        SELECT 0
        SET k x
        EXEC
        SELECT 0
        WATCH k
        @2 DEL k
        @2 SET k x
        MULTI
        GET k
        EXEC
        WATCH k
        @2 FLUSHDB
        MULTI
        GET k
        EXEC
        SET k 1
        WATCH k
        @2 FLUSHALL
        MULTI
        EXEC
        SET k 1
        WATCH k
        @2 RENAME k k2
        MULTI
        EXEC
        SET k 1
        SET k2 2
        WATCH k
        @2 RENAME k2 k
        MULTI
        EXEC
        WATCH k
        @2 COPY k k3
        MULTI
        EXEC
        WATCH k
        @2 COPY k3 k REPLACE
        MULTI
        EXEC
        WATCH k
        @2 PERSIST k
        MULTI
        EXEC
        WATCH k
        @2 GETEX k
        MULTI
        EXEC
        WATCH k
        @2 GETEX k PERSIST
        MULTI
        EXEC
        WATCH k
        @2 GETEX k EX 100
        MULTI
        EXEC
        WATCH k
        @2 APPEND k ""
        MULTI
        EXEC
        WATCH k
        @2 SETRANGE k 0 ""
        MULTI
        EXEC
        WATCH k
        @2 SETRANGE k 0 x
        MULTI
        EXEC
        WATCH k
        @2 TOUCH k
        MULTI
        EXEC
        WATCH k
        @2 SETNX k z
        @2 SET k z NX
        @2 EXPIRE k 10 NX
        MULTI
        EXEC
        WATCH k
        RESET
        @2 SET k q
        MULTI
        GET k
        EXEC
        WATCH k
        QUITX
        MULTI
        EXEC
        WATCH nothere
        MULTI
        SETNX nothere 1
        EXEC
        WATCH k
        @2 EXPIRE k 10000
        MULTI
        EXEC
        WATCH k
        @2 PERSIST k
        MULTI
        EXEC
        WATCH k
        @2 MSET k 1 j 2
        MULTI
        EXEC
        WATCH k
        @2 INCRBY k 0
        MULTI
        EXEC
        WATCH k
        @2 INCRBYFLOAT k 0
        MULTI
        EXEC
        WATCH k
        @2 SET k 1 XX
        MULTI
        EXEC
        WATCH k
        @2 GETSET k 1
        MULTI
        EXEC
    ''',
    "connection": r'''
        PING ""
        PING a b
        ping "\r\n"
        ECHO ""
        ECHO
        SELECT "0 "
        SELECT +1
        SELECT 01
        SELECT ""
        SELECT 2147483648
        SELECT -2147483649
        SELECT 0
        AUTH ""
        AUTH "" ""
        AUTH default ""
        ? HELLO 2 SETNAME ""
        CLIENT GETNAME
        ? HELLO 3 SETNAME a SETNAME b
        CLIENT GETNAME
        HELLO 2 AUTH default "" SETNAME "x y"
        CLIENT GETNAME
        HELLO 2 SETNAME ok AUTH nosuch x
        CLIENT GETNAME
        HELLO SETNAME x
        HELLO 2 3
        HELLO ""
        HELLO 02
        HELLO 99999999999999999999
        HELLO 3 "foo\r\nbar"
        ? HELLO 3
        PING
        CLIENT GETNAME
        GET nothere
        MGET a b
        ? TIME
        CONFIG GET timeout
        CONFIG GET nosuch
        CLIENT NO-EVICT
        CLIENT NO-EVICT ON x
        CLIENT LIST ID 0
        CLIENT LIST ID -1
        CLIENT LIST ID 1 x
        CLIENT LIST TYPE normal x
        CLIENT LIST TYPE slave
        CLIENT LIST ""
        CLIENT LIST x y
        CLIENT LIST ID 99999 99998
        CLIENT KILL ""
        CLIENT KILL x
        CLIENT KILL ID 99999999999999999999
        CLIENT KILL ID 1.5
        CLIENT KILL SKIPME yes ADDR 1:1
        CLIENT KILL SKIPME maybe
        CLIENT KILL ADDR
        CLIENT KILL ADDR 1:1 LADDR 2:2 ID 999999999
        CLIENT KILL USER default ID 99999999
        CLIENT KILL USER ""
        CLIENT KILL TYPE normal ID 99999999
        CLIENT KILL TYPE slave ID 99999999
        CLIENT KILL TYPE master
        CLIENT KILL ID 999999 FOO
        CLIENT KILL FOO
        CLIENT KILL 1 2 3
        CLIENT KILL MAXAGE 100
        CLIENT SETNAME "\x7f"
        CLIENT SETNAME "é"
        CLIENT SETNAME !
        CLIENT GETNAME
        CONFIG GET timeout timeout
        ~ CONFIG GET time* databases
        ~ CONFIG GET [t]imeout
        CONFIG GET TIMEOUT
        CONFIG GET ""
        CONFIG GET TIME*
        CONFIG GET time?ut
        CONFIG SET timeout ""
        CONFIG SET timeout 1.5
        CONFIG SET "" 1
        CONFIG SET timeout 99999999999
        CONFIG SET timeout 0 TIMEOUT 1
        CONFIG SET foo 1 bar 2
        CONFIG SET timeout 0 foo
        CONFIG SET maxclients 0
        CONFIG SET maxclients x
        CONFIG SET tcp-keepalive -1
        CONFIG GET maxmemory
        CONFIG GET client-query-buffer-limit
        CONFIG GET notify-keyspace-events
        CONFIG GET cluster-enabled
        CONFIG GET io-threads
        CONFIG SET TIMEOUT x
        CONFIG SET Databases 5
        CONFIG SET NOSUCH 1
        ? HELLO 2 SETNAME first
        HELLO 2 SETNAME second FOO
        CLIENT GETNAME
        HELLO 9 SETNAME third
        CLIENT GETNAME
    ''',
    "commands": r'''
        COMMAND GETKEYS GET k
        COMMAND GETKEYS
        COMMAND GETKEYS MSET a 1 b 2
        COMMAND GETKEYSANDFLAGS SET a b
        COMMAND INFO GET
        COMMAND INFO get nosuch SET
        COMMAND INFO client|list
        COMMAND INFO "client|nosuch"
        COMMAND INFO "object|encoding"
        COMMAND LIST FILTERBY PATTERN
        COMMAND LIST FILTERBY PATTERN GETRA*
        COMMAND LIST FILTERBY MODULE
        COMMAND LIST FILTERBY PATTERN a b
        COMMAND INFO ""
        COMMAND DOCS ""
        COMMAND ""
        nosuch
        nosuch a b c
        nosuch "a\r\nb" "" "\x00"
        ""
        "no such" x
        "nosuch\r\n" "a\nb"
        get|x a
        client|id
        object|encoding k
        OBJECT FOO a
        MODULE LIST x
    ''',
}

# As scripts.RAW.
RAW = {
    "quote_then_word": b'set a "b"c\r\nPING\r\n',
    "single_then_word": b"set a 'b'c\r\nPING\r\n",
    "word_then_quote": b'set a b"c d"\r\nget a\r\nPING\r\n',
    "hex_short": b'set "a" "\\x4"\r\nget a\r\n',
    "hex_none": b'set a "\\x"\r\nget a\r\n',
    "hex_bad": b'set a "\\xgg"\r\nget a\r\n',
    "escapes": b'set a "\\a\\b\\t\\q\\\\"\r\nget a\r\n',
    "single_escapes": b"set a '\\n\\\\'\r\nget a\r\n",
    "escaped_end": b'set a "abc\\"\r\nget a\r\n',
    "escaped_end_blank": b'set a "abc\\" \r\nget a\r\n',
    "single_open": b"set a 'abc\r\nget a\r\n",
    "second_open": b'set a "x"  "y\r\n',
    "empty_word": b'""\r\nPING\r\n',
    "empty_single": b"''\r\nPING\r\n",
    "quoted_command": b'"ping" "x y"\r\n',
    "blank_lines": b' \r\n \r\nPING\r\n',
    "blanks_before": b'\t\v\f PING\r\n',
    "vertical_tab_behind": b'PING\v\r\n',
    "vertical_tab_within": b'ECHO a\vb\fc\r\n',
    "vertical_tab_alone": b'PING \v x\r\n',
    "cr_within": b'ECHO a\rb\r\nPING\r\n',
    "cr_twice": b'PING\r\r\nPING\r\n',
    "nul_quoted": b'ECHO "a\x00b"\r\nPING\r\n',
    "nul_alone": b'\x00\r\nPING\r\n',
    "line_longest": b'ECHO ' + b'x' * 65530 + b'\r\n',
    "line_at_limit": b'x' * 65536,
    "line_over_limit": b'x' * 65537,
    "multi_then_quote": b'MULTI\r\nSET a 1\r\n"open\r\n',
    "bulk_alone": b'$4\r\nPING\r\n',
    "long_words": b'a' * 300 + b' ' + b'b' * 300 + b' c\r\n',
    "many_words": b'nosuch ' + b'b ' * 300 + b'\r\n',
    "words_at_limit": b'nosuch ' + b'b' * 124 + b' cc dd\r\n',
    "words_over_limit": b'nosuch ' + b'b' * 126 + b' cc dd\r\n',
    "words_together": b'nosuch ' + b'b' * 50 + b' ' + b'c' * 70 + b' d e\r\n',
    "subcommand_long": b'client ' + b'b' * 200 + b' dd ee\r\n',
    "words_odd": b'nosuch \'a b\' "c\\x00d" e\r\n',
    "option_long": b'expire a 10 ' + b'b' * 200 + b'\r\n',
    "error_lines": b'config set "a\\r\\nb" 1\r\nclient kill user "a\\nb"\r\n',
    "bulk_null": b'*3\r\n$3\r\nSET\r\n$1\r\na\r\n$-1\r\nPING\r\n',
    "bulk_two_lf": b'*1\r\n$4\r\nPING\n\n*1\r\n$4\r\nPING\r\n',
    "array_minus_zero": b'*-0\r\nPING\r\n',
    "array_blank": b'*1 \r\n$4\r\nPING\r\n',
    "array_least": b'*-9223372036854775808\r\nPING\r\n',
    "array_less": b'*-9223372036854775809\r\nPING\r\n',
    "array_int": b'*2147483648\r\n',
    "array_empty_line": b'*1\r\n\r\n$4\r\nPING\r\n',
    "array_in_array": b'*1\r\n*1\r\n$4\r\nPING\r\n',
    "array_binary": b'*1\r\n\xff4\r\nPING\r\n',
    "quit_then_error": b'*1\r\n$4\r\nQUIT\r\n*x\r\n',
    "quit_more": b'*2\r\n$4\r\nQUIT\r\n$1\r\nx\r\n',
    "quit_in_multi": b'MULTI\r\n*1\r\n$4\r\nQUIT\r\n',
    "multi_then_error": b'MULTI\r\nGET a\r\n*1\r\n$x\r\n',
    "ends_in_bulk": b'*1\r\n$4\r\nPING\r',
    "ends_in_size": b'*1\r\n$4',
    "post_array": b'*1\r\n$4\r\nPOST\r\nPING\r\n',
    "array_line_feed": b'*1\n$4\r\nPING\r\nPING\r\n',
}
