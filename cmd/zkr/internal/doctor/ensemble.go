package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// versions compares the servers' versions.
func (e *examination) versions(context.Context) Finding {
	f := Finding{Check: "versions", Looked: "the versions that the servers name"}
	var all []string
	for _, m := range e.serving() {
		if v := m.version(); v != "" {
			all = append(all, v)
		}
	}

	all = slices.Compact(slices.Sorted(slices.Values(all)))

	f.Found = strings.Join(all, ", ")
	switch {
	case len(all) == 0:
		f.Status, f.Found = Unknown, "no server names its version"
		f.Do = "open the word srvr: 4lw.commands.whitelist=srvr, which is ZooKeeper's default"
	case slices.ContainsFunc(all, func(v string) bool { return release(v) > 0 && release(v) < 3_05_00 }):
		f.Status = Warn
		f.Do = "upgrade to 3.5 at least: older servers have no containers, so paths stay, and cannot remove watches"
	case len(e.serving()) > 1 && slices.ContainsFunc(all, forgets):
		f.Status = Warn
		f.Do = "upgrade to 3.8.4 or 3.9.4 at least: a follower of these versions that loses its leader while the two synchronize can forget committed transactions, and then a lock has two holders (ZOOKEEPER-4785, ZOOKEEPER-4925)"
	case len(all) > 1:
		f.Status, f.Do = Warn, "finish the upgrade: these servers should be alike"
	default:
		f.Status = OK
	}
	return f
}

// release returns a version as a number (30804 for 3.8.4), or 0.
func release(version string) int {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return 0
	}
	return 10_000*major + 100*minor + patch
}

// forgets reports whether a version has ZOOKEEPER-4785 (fixed in 3.8.4 and 3.9.2) or
// ZOOKEEPER-4925 (in 3.9.3 alone).
func forgets(version string) bool {
	n := release(version)
	return n > 0 && (n < 3_08_04 || n >= 3_09_00 && n < 3_09_02 || n == 3_09_03)
}

// quorum says how many more servers can fail.
func (e *examination) quorum(ctx context.Context) Finding {
	f := Finding{Check: "quorum", Status: OK, Looked: "the modes of the servers, and /zookeeper/config"}
	counts := make(map[string]int)
	for _, m := range e.serving() {
		counts[m.field("Mode")]++
	}

	voters, _, err := e.voters(ctx)
	up := counts["leader"] + counts["follower"]

	switch {
	case counts["standalone"] > 0:
		f.Status = Warn
		f.Found = "one server on its own: while it is down nothing can be acquired, and with its disk all is lost"
		f.Do = "run three or five servers in production"
	case err != nil:
		f.Status = Unknown
		f.Found = fmt.Sprintf("%d leader, %d followers; how many vote is not known (%v)", counts["leader"], counts["follower"], err)
		f.Do = "name all servers in the connect string, or let /zookeeper/config be read"
	case up == 0:
		f.Status, f.Found = Unknown, fmt.Sprintf("%d servers vote; which are up is not known", voters)
		f.Do = "open the word srvr, and name all servers in the connect string"
	default:
		spare := up - voters/2 - 1
		f.Found = fmt.Sprintf("%d of %d voters seen up, %d leader: %d more may fail", up, voters, counts["leader"], max(spare, 0))
		switch {
		case up < voters && spare < 1:
			f.Status = Warn
			f.Do = "bring the missing server up, or name it in the connect string if it is"
		case voters%2 == 0:
			f.Status, f.Do = Warn, "add or remove a voter: an even number tolerates no more failures than one less"
		case voters < 3:
			f.Status, f.Do = Warn, "run three or five servers in production"
		}
	}
	return f
}

// voters returns the number of voters and the client addresses of all members. The ensemble's
// configuration has both.
func (e *examination) voters(ctx context.Context) (n int, addresses []string, err error) {
	data, err := absolute(ctx, e, func(c *zk.Conn) ([]byte, *zk.Stat, error) { return c.Get("/zookeeper/config") })
	for line := range strings.Lines(string(data)) {
		_, member, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(line, "server.") {
			continue
		}

		// Observers don't vote.
		if !strings.Contains(line, ":observer") {
			n++
		}

		// For example: server.1=host:2888:3888:participant;0.0.0.0:2181.
		inner, outer, _ := strings.Cut(member, ";")
		host, _, _ := strings.Cut(inner, ":")
		if at, port, err := net.SplitHostPort(outer); err == nil {
			if ip := net.ParseIP(at); ip == nil || !ip.IsUnspecified() {
				host = at
			}
			addresses = append(addresses, net.JoinHostPort(host, port))
		} else if outer != "" {
			addresses = append(addresses, net.JoinHostPort(host, outer))
		}
	}

	if err == nil && n == 0 {
		err = errors.New("/zookeeper/config names no server")
	}
	return n, addresses, err
}

// settings reports important settings, and says which settings the servers don't tell.
func (e *examination) settings(ctx context.Context) Finding {
	f := Finding{Check: "settings", Status: Unknown, Looked: "the answers of the servers to conf and mntr", Found: "maxClientCnxns is not told"}
	if most, told := e.conf(ctx)["maxClientCnxns"]; told {
		f.Found = fmt.Sprintf("maxClientCnxns is %d: with more connections from one address, a server hangs up, which looks like a loss of quorum (0 is no limit)", most)
		if most > 0 && most < 60 {
			f.Status, f.Do = Warn, "raise maxClientCnxns to its default of 60 at least"
		}
	}

	// A session can't have more nodes than all sessions together.
	const many = 5000
	switch n, told := numbers(e.askAny(ctx, "mntr"))["zk_ephemerals_count"]; {
	case !told:
		f.Found += "; unknown: how many ephemeral nodes there are"
	case n < many:
		f.Found += fmt.Sprintf("; %d ephemeral nodes, which are not too many for one session", n)
	default:
		f.Found += fmt.Sprintf("; %d ephemeral nodes; unknown, without dump: whether one session has so many that its end stops the ensemble, which is at 2 MB of their paths", n)
	}

	// Other words can stop a server with many watches for seconds.
	var open []string
	for _, word := range []string{"srvr", "ruok", "isro", "mntr", "conf", "stat", "cons", "envi", "wchs"} {
		if e.askAny(ctx, word) != "" {
			open = append(open, word)
		}
	}

	f.Found += "; open words: " + cmp.Or(strings.Join(open, ", "), "none") +
		"; unknown, as no server tells: zookeeper.enableEagerACLCheck and zookeeper.forward_learner_requests_to_commit_processor_disabled" +
		"; unknown, as to ask would hurt: dump, wchc, wchp"
	return f
}

// quotas finds paths that are close to their quotas (the servers will soon refuse new nodes there).
func (e *examination) quotas(ctx context.Context) Finding {
	const root, most = "/zookeeper/quota", 25
	f := Finding{Check: "quotas", Status: OK, Looked: "limits and counts below " + root}
	found := 0
	nodes := []string{root}

	// The list grows meanwhile: a node without limits is a directory.
	for i := 0; i < len(nodes); i++ {
		node := nodes[i]
		below, err := absolute(ctx, e, func(c *zk.Conn) ([]string, *zk.Stat, error) { return c.Children(node) })
		if i == most || err != nil && !errors.Is(err, zk.ErrNoNode) {
			f.Status, f.Found = Unknown, f.Found+fmt.Sprintf("unknown: what is below %s (%v); ", node, err)
			break
		}

		if !slices.Contains(below, "zookeeper_limits") {
			for _, child := range below {
				nodes = append(nodes, node+"/"+child)
			}
			continue
		}

		found++
		var limits, used map[string]int
		for part, to := range map[string]*map[string]int{"limits": &limits, "stats": &used} {
			data, err := absolute(ctx, e, func(c *zk.Conn) ([]byte, *zk.Stat, error) { return c.Get(node + "/zookeeper_" + part) })
			if *to = numbers(string(data)); err != nil {
				f.Status = Unknown
			}
		}

		for limit, of := range map[string]string{"count": "count", "countHardLimit": "count", "bytes": "bytes", "byteHardLimit": "bytes"} {
			if most := limits[limit]; most > 0 && used[of] >= most-most/10 {
				f.Status, f.Do = Warn, "raise the quota, or remove what is not used: soon new nodes are refused"
				f.Found += fmt.Sprintf("%s has %d of %d (%s); ", strings.TrimPrefix(node, root), used[of], most, limit)
			}
		}
	}

	f.Found += fmt.Sprintf("%d quotas", found)
	return f
}

// acl says who can do what at the root of all paths.
func (e *examination) acl(ctx context.Context) Finding {
	root := cmp.Or(e.chroot, "/")
	f := Finding{Check: "ACL", Status: OK, Looked: "the ACL of " + root + ", below which all paths are"}
	acl, err := absolute(ctx, e, func(c *zk.Conn) ([]zk.ACL, *zk.Stat, error) { return c.GetACL(root) })
	if err != nil {
		f.Status, f.Found = Unknown, fmt.Sprintf("cannot read it: %v", err)
		return f
	}

	var entries []string
	for _, a := range acl {
		entries = append(entries, fmt.Sprintf("%s:%s:%s", a.Scheme, a.ID, permissions(a.Perms)))
		if a.Scheme == "world" && a.Perms&^zk.PermRead != 0 {
			f.Status = Warn
			f.Do = "anyone who reaches the servers may create or delete nodes there: set an ACL, and use --auth"
		}
	}

	f.Found = strings.Join(entries, ", ")
	return f
}

// permissions formats permissions like zkCli.sh.
func permissions(perms int32) (text string) {
	for _, p := range "cdrwa" {
		if perms>>strings.IndexRune("rwcda", p)&1 != 0 {
			text += string(p)
		}
	}
	return text
}
