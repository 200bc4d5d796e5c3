/* Whether UCX is preferable to tcp on this machine. Pure. */
#ifndef LIGI_UCX_DEVICE_H
#define LIGI_UCX_DEVICE_H

/* Parses the output of ucp_context_print_info. 1 if UCX has a resource that transfers memory
 * between hosts by hardware (InfiniBand, RoCE, EFA); 0 for a text that it cannot parse. */
int ligi_ucx_device_in(const char *text);

#endif
