from proxy.retry.queues.waiting_room cimport WaitingRoom


cdef class Env:
    cdef public object rng
    cdef public double wall_offset
    cdef public WaitingRoom waiting
    cdef public object circuit_changed
    cdef public object credential_aside
    cdef public object cooldown_began
    cdef public object read_key_file
    cdef public object tokens_used
