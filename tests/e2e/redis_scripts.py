"""Scripts that run against a redis-server and against the door.

A line is a request, quoted as redis-cli takes it. Before it may stand `@2`:
by the second connection; then one of
  ~  the elements of the reply in any order
  ?  only what kind of reply it is must be the same
  <  numbers may differ a little (time goes on)
  !  what comes until the server closes the connection
"""

STRINGS = {
    "get_set": r'''
        GET k
        SET k v
        GET k
        SET k ""
        GET k
        SET k "\x00\xff\r\n\x01"
        GET k
        SET "" empty
        GET ""
        get k
        Get k
        SET k 2 EX 100
        < TTL k
        SET k 3
        TTL k
        SET k 4 PX 100000
        < PTTL k
        SET k 5 KEEPTTL
        < TTL k
        GET k
        SET k 6 EXAT 33177117420
        EXPIRETIME k
        SET k 7 PXAT 33177117420123
        PEXPIRETIME k
        EXPIRETIME k
        SET k 8 NX
        GET k
        SET k 9 XX
        GET k
        SET n 1 XX
        GET n
        SET n 1 NX
        GET n
        SET n 2 NX GET
        SET n 3 XX GET
        SET m 3 GET
        SET m 4 GET
        SET m2 5 NX GET
        GET m2
        SET m3 5 XX GET
        EXISTS m3
        SET k v ex 10 nx
        SET k v get ex 10
        SET k v GET KEEPTTL
        < TTL k
        SET k v EXAT 1
        EXISTS k
        SET k v PXAT 1
        EXISTS k
        SET k v EX 1 GET EXAT 5
        SET k v XX NX
        SET k v NX XX
        SET k v NX NX
        SET k v KEEPTTL EX 5
        SET k v EX 5 KEEPTTL
        SET k v EX 5 PX 5
        SET k v EX
        SET k v EX 0
        SET k v EX -1
        SET k v PX 0
        SET k v PX -5
        SET k v EXAT 0
        SET k v EXAT -5
        SET k v PXAT 0
        SET k v EX abc
        SET k v PX 1.5
        SET k v EX 9223372036854775807
        SET k v PX 9223372036854775807
        SET k v EX 9223372036854775
        SET k v EXAT 9223372036854775807
        SET k v PXAT 9223372036854775807
        SET k v EX 92233720368547758070
        SET k v FOO
        SET k v FOO 1
        SET k v IFEQ 1
        SET k v EX 5 FOO
        SET k v PERSIST
        SET k
        SET
        GET
        GET a b
        EXISTS k
    ''',
    "setnx_family": r'''
        SETNX a 1
        SETNX a 2
        GET a
        SETEX a 100 x
        < TTL a
        GET a
        SETEX a 0 x
        SETEX a -1 x
        SETEX a x x
        SETEX a 9223372036854775807 x
        PSETEX a 100000 y
        < PTTL a
        GET a
        PSETEX a 0 y
        PSETEX a -1 y
        PSETEX a a y
        PSETEX a 9223372036854775807 y
        GETSET a z
        TTL a
        GETSET b z
        GETSET b
        GETDEL b
        GETDEL b
        GETDEL
        EXISTS b
        GETEX a
        TTL a
        GETEX a EX 100
        < TTL a
        GETEX a PX 100000
        < PTTL a
        GETEX a PERSIST
        TTL a
        GETEX a EXAT 33177117420
        EXPIRETIME a
        GETEX a PXAT 33177117420123
        PEXPIRETIME a
        GETEX a
        PEXPIRETIME a
        GETEX a EX 0
        GETEX a EX -1
        GETEX a EX x
        GETEX a EX
        GETEX a NX
        GETEX a KEEPTTL
        GETEX a EX 1 PERSIST
        GETEX a PERSIST EX 1
        GETEX a EX 10 PX 10
        GETEX nothere EX 0
        GETEX nothere EX 10
        GETEX nothere
        GETEX nothere PERSIST
        GETEX a EXAT 1
        EXISTS a
        SETNX a
        SETEX a 1
        PSETEX a 1
    ''',
    "many": r'''
        MSET a 1 b 2 c 3
        MGET a b c d a
        MGET
        MSET
        MSET a
        MSET a 1 b
        MSETNX a 1 z 2
        MGET a z
        MSETNX y 1 z 2
        MGET y z
        MSETNX q 1 q 2
        GET q
        MSETNX w 1 w
        MSETNX
        MSET a x a y
        GET a
        SET e v EX 100
        MSET e w
        TTL e
        DEL a b c
        DEL a b c
        DEL
        EXISTS y z y q
        EXISTS
        UNLINK y z y
        UNLINK
        TOUCH q q nothere
        TOUCH
        DBSIZE
    ''',
    "append_ranges": r'''
        APPEND a hello
        APPEND a " world"
        GET a
        STRLEN a
        STRLEN b
        APPEND b ""
        EXISTS b
        GETRANGE a 0 4
        GETRANGE a -5 -1
        GETRANGE a 0 -1
        GETRANGE a 5 2
        GETRANGE a -3 -5
        GETRANGE a 100 200
        GETRANGE a -100 2
        GETRANGE a -100 -50
        GETRANGE a 0 9223372036854775807
        GETRANGE a -9223372036854775808 -1
        GETRANGE a x 1
        GETRANGE a 1 x
        GETRANGE a 1
        GETRANGE nothere 0 -1
        SETRANGE a 6 Redis
        GET a
        SETRANGE a 20 x
        GET a
        STRLEN a
        SETRANGE c 5 x
        GET c
        SETRANGE d 5 ""
        EXISTS d
        SETRANGE a 3 ""
        SETRANGE a -1 x
        SETRANGE a x x
        SETRANGE a 536870912 x
        SETRANGE a 9223372036854775807 x
        SETRANGE a 0
        SET n 10
        APPEND n 5
        INCR n
        SETRANGE n 1 9
        GET n
        STRLEN n
        GETRANGE n 0 0
        SET t v EX 100
        APPEND t x
        < TTL t
        SETRANGE t 0 y
        < TTL t
        STRLEN
        APPEND a
    ''',
    "counters": r'''
        INCR n
        INCR n
        DECR n
        INCRBY n 10
        DECRBY n 3
        GET n
        INCRBY n -100
        DECRBY n -100
        INCRBY n 1.5
        INCRBY n x
        INCRBY n ""
        INCRBY n " 1"
        INCRBY n "1 "
        INCRBY n +1
        INCRBY n 01
        INCRBY n 9223372036854775808
        INCRBY n
        INCR
        INCR n 1
        SET n 9223372036854775807
        INCR n
        INCRBY n 1
        DECR n
        SET n -9223372036854775808
        DECR n
        DECRBY n 1
        DECRBY n -9223372036854775808
        INCR n
        SET s abc
        INCR s
        DECR s
        INCRBY s 3
        SET s " 11"
        INCR s
        SET s "11 "
        INCR s
        SET s 1.0
        INCR s
        SET s ""
        INCR s
        SET s 007
        INCR s
        SET s -0
        INCR s
        SET s +5
        INCR s
        SET s 9223372036854775808
        INCR s
        SET t 5 EX 100
        INCR t
        < TTL t
        INCRBYFLOAT f 10.5
        INCRBYFLOAT f 0.1
        INCRBYFLOAT f -5
        INCRBYFLOAT f 5.0e3
        INCRBYFLOAT f 200
        INCRBYFLOAT f x
        INCRBYFLOAT f ""
        INCRBYFLOAT f " 1"
        INCRBYFLOAT f inf
        INCRBYFLOAT f -inf
        INCRBYFLOAT f nan
        INCRBYFLOAT f 1e400
        INCRBYFLOAT f 1e-10
        SET f 3.0e3
        INCRBYFLOAT f 200
        SET f 1
        INCRBYFLOAT f 1
        SET f 0.1
        INCRBYFLOAT f 0.2
        SET f 1e300
        INCRBYFLOAT f 1
        SET f 17179869184
        INCRBYFLOAT f 1.5
        SET f "1.5 "
        INCRBYFLOAT f 1
        SET f abc
        INCRBYFLOAT f 1
        SET f 1.7976931348623157e308
        INCRBYFLOAT f 1.7976931348623157e308
        SET f 5 EX 100
        INCRBYFLOAT f 1.25
        < TTL f
        GET f
        INCRBYFLOAT f
    ''',
    "encodings": r'''
        SET k 123
        OBJECT ENCODING k
        SET k abc
        OBJECT ENCODING k
        SET k aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        OBJECT ENCODING k
        SET k aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        OBJECT ENCODING k
        SET k 9223372036854775807
        OBJECT ENCODING k
        SET k 9223372036854775808
        OBJECT ENCODING k
        SET k 012
        OBJECT ENCODING k
        SET k ""
        OBJECT ENCODING k
        SET k -5
        OBJECT ENCODING k
        OBJECT ENCODING nothere
        OBJECT encoding k
        OBJECT ENCODING
        OBJECT ENCODING a b
        OBJECT FREQ k
        OBJECT FREQ nothere
        < OBJECT IDLETIME k
        OBJECT IDLETIME nothere
        OBJECT NOSUCH k
        OBJECT
        ? MEMORY USAGE k
        MEMORY USAGE nothere
        MEMORY USAGE k SAMPLES
        ? MEMORY USAGE k SAMPLES 5
        MEMORY USAGE k SAMPLES -1
        MEMORY USAGE k SAMPLES x
        MEMORY USAGE k FOO 5
        MEMORY USAGE
        MEMORY NOSUCH
        MEMORY
        TYPE k
        TYPE nothere
        TYPE
        TYPE a b
    ''',
}

KEYS = {
    "expire": r'''
        EXPIRE k 10
        SET k v
        EXPIRE k 100
        < TTL k
        < PTTL k
        PEXPIRE k 200000
        < PTTL k
        EXPIREAT k 33177117420
        EXPIRETIME k
        PEXPIRETIME k
        PEXPIREAT k 33177117420999
        EXPIRETIME k
        PEXPIRETIME k
        PERSIST k
        PERSIST k
        PERSIST nothere
        TTL k
        PTTL k
        EXPIRETIME k
        PEXPIRETIME k
        TTL nothere
        PTTL nothere
        EXPIRETIME nothere
        PEXPIRETIME nothere
        EXPIRE k 100 XX
        EXPIRE k 100 GT
        EXPIRE k 100 LT
        < TTL k
        EXPIRE k 200 NX
        EXPIRE k 50 GT
        EXPIRE k 200 GT
        < TTL k
        EXPIRE k 300 LT
        EXPIRE k 20 LT
        < TTL k
        EXPIRE k 30 XX
        < TTL k
        EXPIRE k 40 XX GT
        EXPIRE k 30 xx lt
        EXPIRE k 40 NX XX
        EXPIRE k 40 NX GT
        EXPIRE k 40 NX LT
        EXPIRE k 40 GT LT
        EXPIRE k 40 FOO
        EXPIRE k 40 GT FOO
        EXPIRE k x
        EXPIRE k 1.5
        EXPIRE k
        EXPIRE k 9223372036854775807
        EXPIRE k -9223372036854775808
        PEXPIRE k 9223372036854775807
        EXPIRE k 9223372036854775
        EXPIREAT k 9223372036854775807
        PEXPIREAT k 9223372036854775807
        PEXPIRETIME k
        EXPIREAT k x
        PEXPIREAT k x
        PEXPIRE k x
        EXPIRE k 0
        EXISTS k
        SET k v
        EXPIRE k -1
        EXISTS k
        SET k v
        PEXPIREAT k 1
        EXISTS k
        SET k v
        EXPIREAT k 1 NX
        EXISTS k
        SET k v EX 100
        EXPIREAT k 1 GT
        EXISTS k
        EXPIREAT k -5 LT
        EXISTS k
        TTL
        PTTL a b
        PERSIST
        EXPIRETIME
        PEXPIRETIME a b
    ''',
    "rename_copy": r'''
        RENAME a b
        SET a 1
        RENAME a b
        GET b
        EXISTS a
        SET a 2 EX 100
        RENAME a b
        GET b
        < TTL b
        RENAME b b
        GET b
        RENAMENX b b
        RENAMENX nothere b
        SET a 3
        RENAMENX a b
        RENAMENX a c
        GET c
        TTL c
        RENAME a
        RENAMENX a
        RENAME nothere nothere
        COPY c d
        GET d
        COPY c d
        COPY c d REPLACE
        COPY b e
        < TTL e
        COPY c c
        COPY nothere x
        COPY c x DB 1
        COPY c x DB 1
        COPY c x DB 1 REPLACE
        COPY c c DB 0
        COPY c c DB 2
        COPY c x DB
        COPY c x DB 99
        COPY c x DB -1
        COPY c x DB abc
        COPY c x FOO
        COPY c
        SELECT 1
        GET x
        KEYS *
        SELECT 2
        GET c
        SELECT 0
    ''',
    "look": r'''
        MSET one 1 two 2 three 3 four 4 "a*b" 5 "a\\b" 6 "[x]" 7 hello 8 hallo 9
        ~ KEYS *
        ~ KEYS t*
        ~ KEYS *e
        ~ KEYS ????
        ~ KEYS h[ae]llo
        ~ KEYS h[^e]llo
        ~ KEYS h[a-e]llo
        ~ KEYS h[e-a]llo
        ~ KEYS a\\*b
        ~ KEYS a\\\\b
        ~ KEYS "\\[x]"
        ~ KEYS [[]x]
        ~ KEYS h[
        ~ KEYS h[a
        ~ KEYS "h\\"
        ~ KEYS one
        ~ KEYS ONE
        ~ KEYS ""
        ~ KEYS **
        ~ KEYS *l*l*
        ~ KEYS ?
        KEYS
        KEYS a b
        DBSIZE
        DBSIZE x
        SCAN
        SCAN x
        SCAN 0 COUNT
        SCAN 0 COUNT 0
        SCAN 0 COUNT -1
        SCAN 0 COUNT x
        SCAN 0 MATCH
        SCAN 0 FOO
        SCAN 0 FOO BAR
        SCAN 0 MATCH nothing COUNT 1000
        SCAN 0 TYPE list COUNT 1000
        SCAN 0 TYPE nosuch COUNT 1000
        SCAN 0 MATCH one COUNT 1000
        SCAN 0 MATCH one COUNT 1000 TYPE string
        SCAN 0 COUNT 1 MATCH one COUNT 5000
        SCAN 0 TYPE
        SCAN 18446744073709551616
        FLUSHDB
        RANDOMKEY
        RANDOMKEY x
        SET only v
        RANDOMKEY
        FLUSHDB ASYNC
        DBSIZE
        FLUSHDB SYNC
        FLUSHDB FOO
        FLUSHDB ASYNC SYNC
        FLUSHALL
        FLUSHALL ASYNC
        FLUSHALL SYNC
        FLUSHALL FOO
        FLUSHALL SYNC x
    ''',
    "databases": r'''
        SELECT 0
        SET k zero
        SELECT 1
        GET k
        SET k one
        SELECT 15
        SET k fifteen
        DBSIZE
        SELECT 16
        GET k
        SELECT -1
        SELECT x
        SELECT 1.5
        SELECT 99999999999999999999
        SELECT
        SELECT 1 2
        SELECT 1
        GET k
        FLUSHDB
        GET k
        SELECT 0
        GET k
        FLUSHALL
        GET k
        SELECT 15
        GET k
        @2 SET k other
        SELECT 0
        GET k
    ''',
}

TRANSACTIONS = {
    "multi": r'''
        MULTI
        SET a 1
        INCR a
        GET a
        EXEC
        EXEC
        DISCARD
        MULTI
        MULTI
        SET a 5
        DISCARD
        GET a
        MULTI
        EXEC
        MULTI
        NOSUCH x
        SET a 7
        EXEC
        GET a
        MULTI
        SET a
        EXEC
        MULTI
        INCR a
        SET s x
        INCR s
        GET s
        EXEC
        GET a
        MULTI
        PING
        PING x
        ECHO y
        SELECT 1
        SET k in1
        SELECT 0
        GET k
        MGET a s
        SET big 1 EX 0
        EXEC
        MULTI
        WATCH a
        EXEC
        MULTI
        UNWATCH
        EXEC
        MULTI
        HELLO 3
        ? EXEC
        MULTI
        AUTH x
        EXEC
        MULTI
        FLUSHALL
        DBSIZE
        EXEC
        MULTI x
        EXEC x
        DISCARD x
        MULTI
        EXEC x
        EXEC
        MULTI
        DISCARD x
        EXEC
        MULTI
        RESET
        EXEC
        MULTI
        SET x 1
        ~ KEYS *
        SCAN 0 COUNT 100
        RANDOMKEY
        DBSIZE
        OBJECT ENCODING x
        EXEC
        MULTI
        OBJECT NOSUCH
        EXEC
        MULTI
        CONFIG NOSUCH
        EXEC
        MULTI
        CLIENT GETNAME
        ? CLIENT ID
        ? EXEC
    ''',
    "watch": r'''
        WATCH
        WATCH a
        SET a 1
        MULTI
        SET a 2
        EXEC
        GET a
        WATCH a b
        @2 SET b 1
        MULTI
        SET a 3
        EXEC
        GET a
        MULTI
        SET a 4
        EXEC
        WATCH a
        @2 SET a 4
        UNWATCH
        MULTI
        SET a 5
        EXEC
        WATCH a
        @2 SET a x
        MULTI
        DISCARD
        MULTI
        SET a 6
        EXEC
        WATCH nothere
        @2 SET nothere 1
        MULTI
        PING
        EXEC
        WATCH nothere
        @2 DEL nothere
        MULTI
        PING
        EXEC
        WATCH a
        @2 EXPIRE a 100
        MULTI
        PING
        EXEC
        WATCH a
        @2 GET a
        @2 TTL nothere
        MULTI
        PING
        EXEC
        WATCH a
        @2 SELECT 1
        @2 SET a x
        MULTI
        PING
        EXEC
        @2 SELECT 0
        WATCH a
        @2 FLUSHALL
        MULTI
        PING
        EXEC
        WATCH a
        @2 FLUSHALL
        MULTI
        SET a 1
        EXEC
        WATCH a
        SELECT 1
        @2 SET a 3
        MULTI
        PING
        EXEC
        SELECT 0
        WATCH a a a
        MULTI
        INCR a
        INCR a
        DEL a
        SET a again
        APPEND a x
        EXEC
        WATCH a
        RENAME a b
        MULTI
        PING
        EXEC
        WATCH b
        @2 RENAME b c
        MULTI
        PING
        EXEC
        WATCH b
        @2 COPY c b
        MULTI
        PING
        EXEC
        WATCH b
        @2 MSET z 1 b 2
        MULTI
        PING
        EXEC
        WATCH b
        RESET
        @2 SET b 9
        MULTI
        PING
        EXEC
        WATCH came
        @2 SET came 1
        GET came
        @2 DEL came
        MULTI
        PING
        EXEC
        WATCH came
        @2 SET came 1
        MGET a came
        @2 DEL came
        MULTI
        PING
        EXEC
        WATCH came
        SET came 1
        DEL came
        MULTI
        PING
        EXEC
        WATCH came gone
        GET came
        @2 SET other 1
        MULTI
        PING
        EXEC
        UNWATCH x
        UNWATCH
    ''',
}

CONNECTIONS = {
    "simple": r'''
        PING
        PING hello
        PING a b
        ping
        ECHO x
        ECHO
        ECHO a b
        ECHO ""
        NOSUCH
        NOSUCH a b c
        NOSUCH "a\r\nb" "c\x00d"
        nosuch aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
        nosuch a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z
        "" x
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b
        ? TIME
        TIME x
        MODULE LIST
        MODULE LIST x
        MODULE NOSUCH
        MODULE
        AUTH x
        AUTH default x
        AUTH nosuch x
        AUTH
        AUTH a b c
        RESET
        RESET x
        DBSIZE
        ! QUIT
    ''',
    "hello": r'''
        ? HELLO
        HELLO 1
        HELLO 4
        HELLO x
        HELLO -1
        HELLO 3.0
        ? HELLO 2
        GET nothere
        ? HELLO 3
        GET nothere
        ? HELLO 3 SETNAME me
        CLIENT GETNAME
        HELLO 3 SETNAME "a b"
        HELLO 3 SETNAME
        HELLO 3 FOO
        ? HELLO 3 AUTH default x
        HELLO 3 AUTH nosuch x
        HELLO 3 AUTH default
        ? HELLO 2 AUTH default x SETNAME you
        CLIENT GETNAME
        ? HELLO 2 SETNAME other
        CLIENT GETNAME
        RESET
        CLIENT GETNAME
    ''',
    "client": r'''
        CLIENT GETNAME
        CLIENT SETNAME me
        CLIENT GETNAME
        CLIENT SETNAME "a b"
        CLIENT SETNAME "a\n"
        CLIENT SETNAME ""
        CLIENT GETNAME
        CLIENT SETNAME
        CLIENT SETNAME a b
        ? CLIENT ID
        CLIENT ID x
        CLIENT NOSUCH
        CLIENT
        CLIENT NO-EVICT on
        CLIENT NO-EVICT off
        CLIENT NO-EVICT x
        CLIENT NO-EVICT
        ? CLIENT INFO
        ? CLIENT LIST
        CLIENT LIST TYPE nosuch
        ? CLIENT LIST TYPE normal
        CLIENT LIST TYPE master
        CLIENT LIST TYPE replica
        CLIENT LIST TYPE pubsub
        CLIENT LIST ID
        CLIENT LIST ID x
        CLIENT LIST ID 999999999
        CLIENT LIST FOO
        CLIENT LIST TYPE
        CLIENT KILL
        CLIENT KILL 1.2.3.4:5
        CLIENT KILL ID
        CLIENT KILL ID x
        CLIENT KILL ID 0
        CLIENT KILL ID -1
        CLIENT KILL ID 999999999
        CLIENT KILL ADDR 1.2.3.4:5
        CLIENT KILL LADDR 1.2.3.4:5
        CLIENT KILL TYPE nosuch
        CLIENT KILL TYPE pubsub
        CLIENT KILL TYPE pubsub SKIPME yes
        CLIENT KILL TYPE pubsub SKIPME x
        CLIENT KILL USER nosuch
        CLIENT KILL FOO bar
        CLIENT KILL ID 999999999 ADDR
        CLIENT GETNAME x
        CLIENT INFO x
    ''',
    "config": r'''
        CONFIG
        CONFIG NOSUCH
        CONFIG GET
        CONFIG GET nosuchthing
        CONFIG GET databases
        CONFIG GET DATABASES
        CONFIG GET appendonly
        CONFIG GET save
        CONFIG GET maxmemory-policy
        CONFIG GET timeout
        CONFIG GET tcp-keepalive
        CONFIG GET maxclients
        ~ CONFIG GET timeout databases
        CONFIG SET
        CONFIG SET timeout
        CONFIG SET timeout x
        CONFIG SET timeout -1
        CONFIG SET nosuchthing 1
        CONFIG SET databases 5
        CONFIG SET timeout 0
        CONFIG SET timeout 0 timeout 0
        CONFIG SET timeout 0 nosuchthing 1
        CONFIG RESETSTAT
        CONFIG RESETSTAT x
    ''',
    "command": r'''
        ? COMMAND COUNT
        COMMAND COUNT x
        COMMAND NOSUCH
        COMMAND INFO nosuch
        COMMAND INFO nosuch nosuch
        COMMAND DOCS nosuch
        COMMAND LIST FILTERBY
        COMMAND LIST FILTERBY MODULE nosuch
        COMMAND LIST FILTERBY ACLCAT nosuch
        COMMAND LIST FILTERBY PATTERN nosuch*
        COMMAND LIST FILTERBY PATTERN getra*
        COMMAND LIST FILTERBY PATTERN object|en*
        COMMAND LIST FILTERBY FOO bar
        COMMAND LIST FOO
    ''',
    "info": r'''
        INFO nosuch
        INFO cluster
        INFO modules
        ? INFO
        ? INFO server
        ? INFO server clients
        ? INFO all
        ? INFO everything
        ? INFO default
    ''',
}

# What COMMAND INFO and COMMAND DOCS say of each is compared, too.
COMMANDS = """ping echo quit select auth hello reset client client|id
    client|getname client|setname client|list client|info client|kill
    client|no-evict command command|count command|docs command|info
    command|list config config|get config|set config|resetstat info dbsize time
    module module|list memory memory|usage object object|encoding object|freq
    object|idletime get set setnx setex psetex getset getdel getex mget mset
    msetnx append strlen getrange setrange incr decr incrby decrby incrbyfloat
    del unlink exists type expire pexpire expireat pexpireat expiretime
    pexpiretime ttl pttl persist scan keys randomkey rename renamenx copy touch
    flushdb flushall multi exec discard watch unwatch""".split()

# Not of 7.0, but its clients send them: an error that they live with.
NEWER = ("CLIENT SETINFO LIB-NAME x", "CLIENT SETINFO lib-ver 1",
         "CLIENT NO-TOUCH on")

# Raw bytes on a connection, then the end of what the client says: what comes
# back, until the server closes, must be the same.
RAW = {
    "inline": b"PING\r\nSET a 1\r\nGET a\r\n",
    "inline_lf": b"PING\nGET a\n",
    "inline_spaces": b"   PING  \r\n\tECHO\t x \r\n",
    "inline_quotes": b'ECHO "a b\\x41\\n"\r\nECHO \'c d\'\r\nECHO ""\r\n',
    "inline_unbalanced": b'ECHO "a b\r\nPING\r\n',
    "inline_after_quote": b'ECHO "a"b\r\nPING\r\n',
    "inline_single_escape": b"ECHO 'it\\'s'\r\n",
    "inline_nul": b"ECHO a\0b\r\n",
    "inline_binary": b"\xff\xfe\r\nPING\r\n",
    "inline_long": b"ECHO " + b"x" * 60000 + b"\r\n",
    "inline_too_long": b"ECHO " + b"x" * 70000,
    "inline_too_long_line": b"ECHO " + b"x" * 70000 + b"\r\n",
    "inline_partial": b"PING\r\nPIN",
    "inline_empty": b"\r\n\r\n\nPING\r\n",
    "inline_cr": b"PING\rPING\r\n",
    "empty_array": b"*0\r\n*-1\r\n*-5\r\nPING\r\n",
    "array_x": b"*x\r\n",
    "array_big": b"*1048577\r\n",
    "array_limit": b"*1048576\r\n$4\r\nPING\r\n",
    "array_huge": b"*99999999999999999999\r\n",
    "array_float": b"*1.5\r\n",
    "array_space": b"* 1\r\n",
    "array_plus": b"*+1\r\n$4\r\nPING\r\n",
    "array_zeros": b"*01\r\n$4\r\nPING\r\n",
    "array_nothing": b"*\r\n",
    "array_no_lf": b"*1\r\r$4\r\nPING\r\n",
    "array_lf": b"*1\n$4\nPING\n",
    "array_too_long": b"*" + b"1" * 70000,
    "bulk_x": b"*1\r\n$x\r\n",
    "bulk_minus": b"*1\r\n$-1\r\n",
    "bulk_huge": b"*1\r\n$536870913\r\n",
    "bulk_overflow": b"*1\r\n$99999999999999999999\r\n",
    "bulk_nothing": b"*1\r\n$\r\n",
    "bulk_plus": b"*1\r\n$+4\r\nPING\r\n",
    "bulk_zeros": b"*1\r\n$04\r\nPING\r\n",
    "bulk_missing": b"*1\r\nPING\r\n",
    "bulk_wrong": b"*2\r\n$4\r\nECHO\r\n+OK\r\n",
    "bulk_integer": b"*2\r\n$4\r\nECHO\r\n:1\r\n",
    "bulk_wrong_end": b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    "bulk_too_long": b"*1\r\n$" + b"1" * 70000,
    "bulk_empty": b"*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n",
    "partial": b"*2\r\n$4\r\nECHO\r\n$5\r\nab",
    "after_error": b"*1\r\n$4\r\nPING\r\n*x\r\n*1\r\n$4\r\nPING\r\n",
    "mixed": b"*1\r\n$4\r\nPING\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\nx\r\nPING\r\n",
    "http_get": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http_post": b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET a b\r\n",
    "http_host": b"Host: x\r\nPING\r\n",
    "quit_then": b"PING\r\nQUIT\r\nPING\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
    "nothing": b"",
}
