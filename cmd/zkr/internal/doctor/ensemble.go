package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// versions compares the versions of the servers.
func (e *examination) versions(context.Context) {
	f := Finding{Check: "versions", Looked: "the versions that the servers name"}
	var all []string
	for _, m := range e.serving() {
		if v := m.version(); v != "" {
			all = append(all, v)
		}
	}

	slices.Sort(all)
	all = slices.Compact(all)

	f.Found = strings.Join(all, ", ")
	switch {
	case len(all) == 0:
		f.Status, f.Found = Unknown, "no server names its version"
		f.Do = "open the word srvr: 4lw.commands.whitelist=srvr, which is ZooKeeper's default"
	case slices.ContainsFunc(all, isOld):
		f.Status = Warn
		f.Do = "upgrade to 3.5 at least: older servers have no containers, so paths stay, and cannot remove watches"
	case len(all) > 1:
		f.Status, f.Do = Warn, "finish the upgrade: these servers should be alike"
	default:
		f.Status = OK
	}

	e.report(f)
}

// isOld reports whether a version is before 3.5.
func isOld(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (a < 3 || a == 3 && b < 5)
}

// quorum says how many servers may still fail.
func (e *examination) quorum(ctx context.Context) {
	f := Finding{Check: "quorum", Status: OK, Looked: "the modes of the servers, and /zookeeper/config"}
	counts := make(map[string]int)
	for _, m := range e.serving() {
		counts[m.field("Mode")]++
	}

	voters, err := e.voters(ctx)
	up := counts["leader"] + counts["follower"]

	switch {
	case counts["standalone"] > 0:
		f.Status = Warn
		f.Found = "one server on its own: while it is down nothing can be acquired, and with its disk all is lost"
		f.Do = "run three or five servers in production"
	case err != nil || voters == 0:
		f.Status = Unknown
		f.Found = fmt.Sprintf("%d leader, %d followers; how many vote is not known (%v)", counts["leader"], counts["follower"], err)
		f.Do = "name all servers in the connect string, or let /zookeeper/config be read"
	case up == 0:
		f.Status, f.Found = Unknown, fmt.Sprintf("%d servers vote; which are up is not known", voters)
		f.Do = "open the word srvr, and name all servers in the connect string"
	default:
		spare := up - voters/2 - 1
		f.Found = fmt.Sprintf("%d of %d voters seen up, %d leader: %s", up, voters, counts["leader"], spares(spare))
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

	e.report(f)
}

func spares(n int) string {
	switch {
	case n < 1:
		return "no further failure is tolerated"
	case n == 1:
		return "one more may fail"
	}
	return fmt.Sprintf("%d more may fail", n)
}

// voters returns how many servers vote, as the ensemble's own configuration says.
func (e *examination) voters(ctx context.Context) (n int, err error) {
	s, err := e.client.Session(ctx)
	if err != nil {
		return 0, err
	}

	data, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]byte, error) {
		data, _, err := c.Get("/zookeeper/config") // which is the same below any chroot
		return data, err
	})
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
			n++
		}
	}
	return n, err
}

// words says which four-letter words are open.
func (e *examination) words(ctx context.Context) {
	f := Finding{Check: "four-letter words", Status: OK, Looked: "the answers of the first server that serves"}
	members := e.serving()
	if len(members) == 0 {
		return
	}

	var open, telling []string
	for _, word := range []string{"srvr", "ruok", "isro", "mntr", "conf", "stat", "cons", "dump", "envi", "wchs", "wchc", "wchp"} {
		answer, err := e.ask(ctx, members[0].address, word)
		if err != nil || answer == "" || isClosed(answer) {
			continue
		}
		open = append(open, word)
		if slices.Contains([]string{"cons", "dump", "envi", "wchc", "wchp"}, word) {
			telling = append(telling, word)
		}
	}

	f.Found = "open: " + strings.Join(open, ", ")
	if len(open) == 0 {
		f.Found = "all are closed"
	}

	if len(telling) > 0 {
		f.Status = Warn
		f.Do = fmt.Sprintf("close %s, which disclose clients or cost the server much: 4lw.commands.whitelist=srvr,mntr", strings.Join(telling, ", "))
	}

	e.report(f)
}

// acl says who may do what at the root of all paths.
func (e *examination) acl(ctx context.Context) {
	root := e.chroot
	if root == "" {
		root = "/"
	}

	f := Finding{Check: "ACL", Status: OK, Looked: "the ACL of " + root + ", below which all paths are"}
	s, err := e.client.Session(ctx)
	if err != nil {
		return
	}

	acl, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.ACL, error) {
		acl, _, err := c.GetACL(root)
		return acl, err
	})
	if err != nil {
		f.Status, f.Found = Unknown, fmt.Sprintf("cannot read it: %v", err)
		e.report(f)
		return
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
	e.report(f)
}

// permissions writes permissions as zkCli.sh does.
func permissions(perms int32) string {
	text := ""
	for _, p := range []struct {
		bit  int32
		name string
	}{{zk.PermCreate, "c"}, {zk.PermDelete, "d"}, {zk.PermRead, "r"}, {zk.PermWrite, "w"}, {zk.PermAdmin, "a"}} {
		if perms&p.bit != 0 {
			text += p.name
		}
	}
	return text
}

// errNoContainers says that a server has ended the connection instead of creating a container.
var errNoContainers = errors.New("the server ended the connection")

// containers says whether paths go by themselves. It uses a session of its own: a server without
// containers ends the connection.
func (e *examination) containers(ctx context.Context) {
	f := Finding{Check: "containers", Status: OK, Looked: "the creation of a container"}
	if !e.writable {
		e.unwritable(f.Check, f.Looked)
		return
	}

	switch err := e.createContainer(ctx); {
	case err == nil:
		f.Found = "the servers have them: paths that are not in use go by themselves"
	case errors.Is(err, errNoContainers), errors.Is(err, zk.ErrUnknown), strings.Contains(err.Error(), "unknown error"):
		f.Status, f.Found = Warn, fmt.Sprintf("the servers have none (%v): paths stay when they are not in use", err)
		f.Do = "use ZooKeeper 3.5 or later"
	default:
		f.Status, f.Found = Unknown, err.Error()
	}

	e.report(f)
}

func (e *examination) createContainer(ctx context.Context) error {
	c, err := e.connect(ctx, e.Servers)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}

	node := e.Path + "/container"
	_, err = protocol.DoOnce(ctx, s, func(c *zk.Conn) (string, error) {
		return protocol.Create(c, s.Path(node), nil, zk.FlagContainer, s.ACL(node))
	}, func(context.Context) (string, bool, error) { return "", false, errNoContainers })
	if err != nil {
		return err
	}
	return s.Delete(ctx, node, -1)
}
