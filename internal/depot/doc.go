// Package depot is what holds the memory of snapshots on each host of a job that another launcher
// starts. The ranks there come and go with their launcher; the depot stays.
//
// On gorun's host gorun itself is the depot ([Open]). On each other one it is a process, which the
// first rank there starts ([Ensure]), and which leaves that rank's process group, session and
// descriptors. It holds a connection to gorun, its tether, and ends when that does: so nothing is
// left behind when gorun is killed or the host is cut off.
//
//	rank ── abstract socket ──> depot of its host     the memory's descriptor, where the depot can be reached
//	rank ──────── TCP ────────> depot of another host reads and writes in the memory: a [Remote]
//	depot ─────── TCP ────────> gorun                 the tether; gorun asks by it to end the ranks
//	rank 0 ────── TCP ────────> gorun                 learns of the depots of hosts that have no ranks now
//
// A rank holds its connection to the depot of its host for as long as it lives. Before another
// attempt of the job begins, gorun has each depot kill the ranks that are still connected, so that
// none of an old attempt, stopped or cut off from its launcher, writes among those of the new one.
//
// Who connects by TCP has to know the job's secret, which is in the environment of the ranks; on
// the host itself it is enough to be the same user.
package depot
