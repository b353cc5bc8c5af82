package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kinds are all faults. A function keeps up its fault with injection.hold, and must undo it before
// it returns.
var kinds = map[string]func(*injection) error{
	// The traffic between members, and between clients and members.
	"partition-leader":   imposed(cutLeader),
	"partition-halves":   imposed(cutHalves),
	"partition-one-way":  imposed(cutOneWay),
	"partition-bridge":   imposed(cutAllButBridge),
	"partition-ring":     imposed(cutRing),
	"partition-total":    imposed(cutAll),
	"partition-flapping": flapping(cutHalves),
	"members-half-frame": halved(halveMembers),
	"members-latency":    imposed(delayMembers),

	"clients-cut":          imposed(cutClients),
	"clients-one-way":      imposed(cutClientsOneWay),
	"clients-some-members": imposed(cutClientsFromSome),
	"clients-split":        imposed(splitBrain),
	"clients-half-frame":   halved(halveClients),
	"clients-latency":      imposed(delayClients),
	"clients-reset":        resetClients,

	// Members' processes.
	"kill-all":        on(all, killed),
	"kill-leader":     on(theLeader, killed),
	"kill-majority":   on(aMajority, killed),
	"kill-minority":   on(aMinority, killed),
	"pause-all":       on(all, paused),
	"pause-leader":    on(theLeader, paused),
	"pause-minority":  on(aMinority, paused),
	"pause-flicker":   on(one, flicker),
	"leader-changes":  changeLeaders,
	"leader-deposed":  on(theLeader, deposeLeader),
	"restart-rolling": on(all, restartAll),

	// Their disks and data.
	"disk-full": on(aMinority, fillDisks),
	"disk-slow": on(some, slowDisks),
	"data-lost": on(aMinority, loseData),
	"amnesia":   on(aMinority, amnesia),

	// Their clocks.
	"clock-jump": on(oneOrAll, jumpClocks),
	"clock-rate": on(oneOrAll, driftClocks),

	// The ensemble's list of members (and so the size of a quorum).
	"reconfig": on(all, removeMembers),
}

// Kinds returns the kinds of faults that are possible here, sorted.
func (c *Cluster) Kinds() []string {
	var here []string
	missing := c.Missing()
	for kind := range kinds {
		if missing[kind] == "" {
			here = append(here, kind)
		}
	}
	slices.Sort(here)
	return here
}

// Missing returns the kinds of faults that Kinds leaves out, each with the reason: they aren't
// possible here, or no recipe can survive them. (It also has containers if they aren't possible.)
func (c *Cluster) Missing() map[string]string {
	all := maps.Clone(c.missing)
	if forgets(c.version) {
		all["members-half-frame"] = "ZooKeeper " + c.version + " can forget committed transactions if followers lose their leader while they synchronize (ZOOKEEPER-4785)"
	}
	return all
}

// forgets reports whether this version of ZooKeeper has ZOOKEEPER-4785.
func forgets(version string) bool {
	var major, minor, patch int
	fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case major != 3 || minor > 9:
		return false
	case minor == 9:
		return patch < 2
	}
	return minor < 8 || patch < 4
}

// Inject breaks the ensemble by a fault of this kind, with r for each choice. It keeps up the fault
// for about as long as lasts, or until ctx ends. Then it undoes the fault and returns. It doesn't
// wait until all members serve again (Heal does). clients is how many client processes there are.
// detail says what exactly it has done, and to which members. An error means that something
// couldn't be done or undone.
//
// Faults may be injected at the same time. Network faults add up. A fault of members takes members
// that no other fault has. If there are too few, Inject does nothing and returns an error.
func (c *Cluster) Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) (detail string, err error) {
	i := &injection{Cluster: c, ctx: ctx, r: r, lasts: lasts, clients: clients}
	do, ok := kinds[kind]
	switch {
	case !ok:
		err = errors.New("there is no such fault")
	case c.missing[kind] != "":
		err = fmt.Errorf("it cannot be had here: %s", c.missing[kind])
	default:
		err = do(i)
		i.release()
	}
	return strings.Join(i.details, "; "), err
}
