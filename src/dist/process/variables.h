/* variables: the names of the environment variables that the processes of a job read. */
#ifndef DIST_VARIABLES_H
#define DIST_VARIABLES_H

/* Set by the launcher for its ranks. */
#define LAUNCHER_VARIABLE "DDPTRAIN_LAUNCHER"   /* the launcher's pid: a rank's parent has it, a grandchild's has not */
#define JOB_VARIABLE "DDPTRAIN_JOB_ID"          /* the same on all nodes of the job */
#define STORE_FD_VARIABLE "DDPTRAIN_STORE_FD"   /* rank 0: a listening socket for the store */
#define SECRET_FD_VARIABLE "DDPTRAIN_SECRET_FD" /* a file with the job's secret */
#define REPORT_FD_VARIABLE "DDPTRAIN_REPORT_FD" /* a socket to the launcher, for launcher_send */
#define EXITS_FD_VARIABLE "DDPTRAIN_EXITS_FD"   /* a socket on which the launcher reports how other ranks ended */
#define ACTIVITY_FD_VARIABLE "DDPTRAIN_ACTIVITY_FD"   /* a memfd for the activity record, which the launcher reads */
#define LINK_VARIABLE "DDPTRAIN_LINK"                 /* 1: this rank must create a link to the launcher of node 0 */
#define RESTART_COUNT_VARIABLE "DDPTRAIN_INCARNATION" /* restarts of the ranks so far */
#define BEGUN_VARIABLE "DDPTRAIN_BEGUN"               /* 1: an earlier start has opened the run folder */
#define SECRET_VARIABLE "DDPTRAIN_SECRET"             /* set by the user across nodes */
#define INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"       /* as PyTorch: overrides the network interface */

#endif
