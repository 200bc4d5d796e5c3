/* Calls of a remote store with one request and one reply, and the table of all calls. */
#ifndef LIGI_CLIENT_CALLS_H
#define LIGI_CLIENT_CALLS_H

#include "store/remote.h"

extern const ligi_remote_ops ligi_client_ops;

#endif
