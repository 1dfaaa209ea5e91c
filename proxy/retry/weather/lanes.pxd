# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.caller cimport Caller
from proxy.retry.weather.lane cimport Lane
from proxy.retry.weather.lost_rows cimport LostRows
from proxy.retry.capacity.traffic cimport Traffic
from proxy.retry.weather.usual_times cimport UsualTimes
from proxy.retry.weather.weather_changes cimport WeatherWatch


cdef double _NEVER


cdef class Lanes:
    cdef public double quiet_from
    cdef public object fleet
    cdef public WeatherWatch watch
    cdef public UsualTimes usual
    cdef public LostRows lost
    cdef public Traffic traffic
    cdef public dict traffics
    cdef public Lane first
    cdef public dict by_name
    cdef public set holding
    cdef public long _credentials
    cdef public long _paths
    cdef public object _ends
    cdef public double _latest
    cdef public set _limited

    cpdef Lane of_endpoint(self, str endpoint)
    cpdef Traffic traffic_of(self, str endpoint)
    @cython.locals(lane=Lane)
    cpdef Lane of(self, tuple name)
    cpdef Lane find(self, tuple name)
    cpdef list of_caller(self, Caller caller)
    cpdef refresh(self, Caller caller, double now)
    cpdef list _names_of(self, Caller caller)
    cpdef bint tells_credentials_apart(self) except -1
    cpdef bint limits_credentials(self) except -1
    cpdef bint tells_paths_apart(self) except -1
    cpdef Lane _make(self, tuple name)
    cpdef Lane _keep(self, tuple name, Lane lane)
    @cython.locals(lane=Lane, holding=set, watch=WeatherWatch)
    cpdef look(self, changed, double now)
    cpdef _note_limit(self, Lane lane)
    @cython.locals(lost=LostRows, watched=bint, traffic=Traffic)
    cpdef set_watched(self)


cpdef bint may_hold(Lane lane, double now) except -1
