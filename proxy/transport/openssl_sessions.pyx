# cython: language_level=3, binding=False
"""TLS sessions as OpenSSL has them, past Python's `ssl`: that module copies a session whenever it is read or set, by
writing it as DER and reading it again, the server's certificate and key included, which is half of what a resumed
handshake costs. OpenSSL's own copy shares the certificate.

How a connection of `ssl` is found in OpenSSL: by an index of ex_data (SSL_get_ex_new_index), whose function OpenSSL calls
with each connection that it makes, on the thread that makes it. So nothing is known here of how `ssl` lays out its
objects. The functions are those that `_ssl` itself is linked with. Where one is missing, or where `_ssl` uses another
OpenSSL than the one found, no connection is found, and `tls` lets `ssl` set and read sessions.

Law: a session that is kept is never a connection's own. OpenSSL marks the session of a connection that ends without a
close_notify as one that can't be resumed. So `session` takes a copy, and `offer` sets a copy.
"""

cdef extern from "dlfcn.h":
    void *dlopen(const char *name, int mode)
    void *dlsym(void *handle, const char *name)
    int RTLD_LAZY
    int RTLD_NOLOAD

cdef extern from *:
    """
    #include <stddef.h>
    typedef void (*redrive_new_function)(void *, void *, void *, int, long, void *);
    static __thread void *redrive_made;       /* the connection that this thread made last */
    static __thread unsigned redrive_count;   /* how many it made since `forget` */
    static void redrive_note(void *parent, void *value, void *data, int index, long number, void *argument)
    {
        redrive_made = parent;
        redrive_count++;
    }
    """
    ctypedef void (*redrive_new_function)(void *, void *, void *, int, long, void *)
    void *redrive_made
    unsigned redrive_count
    void redrive_note(void *parent, void *value, void *data, int index, long number, void *argument)

ctypedef int (*new_index_function)(int, long, void *, redrive_new_function, void *, void *)
ctypedef int (*of_one)(void *)
ctypedef int (*of_two)(void *, void *)
ctypedef void *(*to_other)(void *)
ctypedef void (*ended)(void *)

#: CRYPTO_EX_INDEX_SSL of OpenSSL's crypto.h.
cdef int OF_CONNECTIONS = 0

cdef of_one SSL_up_ref = NULL
cdef ended SSL_free = NULL
cdef of_two SSL_set_session = NULL
cdef to_other SSL_get1_session = NULL
cdef to_other SSL_SESSION_dup = NULL
cdef of_one SSL_SESSION_is_resumable = NULL
cdef ended SSL_SESSION_free = NULL


cdef class Session:
    """A session that can be offered to the server that it was made with. It belongs to no connection."""

    cdef void *_session

    def __dealloc__(self):
        if self._session is not NULL:
            SSL_SESSION_free(self._session)


cdef class Connection:
    """A TLS connection in OpenSSL, which lives at least as long as this object."""

    cdef void *_connection

    def __dealloc__(self):
        if self._connection is not NULL:
            SSL_free(self._connection)

    def offer(self, Session session not None):
        """Offer this session to the server. To be called before the handshake. Returns whether OpenSSL took it."""
        cdef void *copy = SSL_SESSION_dup(session._session)
        cdef int taken
        if copy is NULL:
            return False
        taken = SSL_set_session(self._connection, copy)
        SSL_SESSION_free(copy)
        return taken == 1

    def session(self):
        """A copy of the connection's session; None if it can't be resumed, or can't be yet: with TLS 1.3 it can once
        data has arrived.
        """
        cdef Session kept
        cdef void *own = SSL_get1_session(self._connection)
        if own is NULL:
            return None
        kept = Session.__new__(Session)
        if SSL_SESSION_is_resumable(own) == 1:
            kept._session = SSL_SESSION_dup(own)
        SSL_SESSION_free(own)
        return None if kept._session is NULL else kept


def forget():
    """Forget the connections that this thread has made, before it makes one that `last_made` is to return."""
    global redrive_made, redrive_count
    redrive_made = NULL
    redrive_count = 0


def last_made():
    """The connection that this thread has made since `forget`; None if it made none, or several, or if OpenSSL can't be
    asked here.
    """
    cdef Connection made
    cdef void *found = redrive_made
    if redrive_count != 1 or found is NULL or SSL_up_ref(found) != 1:
        return None
    made = Connection.__new__(Connection)
    made._connection = found
    return made


cdef bint _begin() except -1:
    """Find OpenSSL's functions, and ask for its new connections; whether all were found."""
    global SSL_up_ref, SSL_free, SSL_set_session, SSL_get1_session, SSL_SESSION_dup, SSL_SESSION_is_resumable
    global SSL_SESSION_free
    import _ssl

    cdef new_index_function new_index
    cdef bytes path
    cdef void *library
    file = getattr(_ssl, "__file__", None)  # None: the interpreter has it built in
    if file is None:
        library = dlopen(NULL, RTLD_LAZY)
    else:
        path = file.encode("utf-8", "surrogateescape")
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)
    if library is NULL:
        return False
    new_index = <new_index_function>dlsym(library, "CRYPTO_get_ex_new_index")
    SSL_up_ref = <of_one>dlsym(library, "SSL_up_ref")
    SSL_free = <ended>dlsym(library, "SSL_free")
    SSL_set_session = <of_two>dlsym(library, "SSL_set_session")
    SSL_get1_session = <to_other>dlsym(library, "SSL_get1_session")
    SSL_SESSION_dup = <to_other>dlsym(library, "SSL_SESSION_dup")
    SSL_SESSION_is_resumable = <of_one>dlsym(library, "SSL_SESSION_is_resumable")
    SSL_SESSION_free = <ended>dlsym(library, "SSL_SESSION_free")
    if (
        new_index is NULL
        or SSL_up_ref is NULL
        or SSL_free is NULL
        or SSL_set_session is NULL
        or SSL_get1_session is NULL
        or SSL_SESSION_dup is NULL
        or SSL_SESSION_is_resumable is NULL
        or SSL_SESSION_free is NULL
    ):
        return False
    return new_index(OF_CONNECTIONS, 0, NULL, redrive_note, NULL, NULL) >= 0


_begin()
