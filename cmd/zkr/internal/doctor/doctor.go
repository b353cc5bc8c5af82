package doctor

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Run examines the ensemble and reports each finding as it comes. It opens several sessions. It
// writes a megabyte once, and little data some dozen times, below a node of its own. That node is
// removed at the end. If Run is killed, the servers remove the node.
//
// Run blocks for some seconds. It returns ctx's error, or an error in the connect string or the
// path before any I/O. A server that can't be reached is a finding.
func Run(ctx context.Context, cfg Config, report func(Finding)) error {
	if err := recipe.ValidatePath(cfg.Path); err != nil {
		return err
	}

	e := newExamination(cfg)
	e.report = report
	report(e.askMembers(ctx))
	client, err := e.connect(ctx, cfg.Servers)
	if err != nil {
		report(Finding{
			Check: "session", Status: Fail, Looked: "a session with " + e.Servers,
			Found: fmt.Sprintf("none within %v: %v", e.Limit, err),
			Do:    "bring up a quorum of the servers; check addresses, credentials, firewalls and TLS",
		})

		return ctx.Err()
	}
	defer client.Close()
	e.client = client

	if !e.hasChroot(ctx) {
		return ctx.Err()
	}

	// The clock is read twice, with the other checks in between.
	if e.scratch(ctx) {
		defer e.clean()
		e.firstTick = e.tick(ctx)
	}

	for _, check := range []struct {
		writes string // the name of a check that writes
		run    func(context.Context) Finding
	}{
		{"", e.oneEnsemble}, {"", e.versions}, {"", e.quorum}, {"", e.timeouts}, {"", e.acl},
		{"", e.settings}, {"", e.quotas}, {"request size", e.size}, {"cost", e.cost}, {"clocks", e.clock},
	} {
		switch {
		case ctx.Err() != nil:
		case check.writes != "" && !e.writable:
			report(Finding{Check: check.writes, Status: Unknown, Looked: "nothing", Found: "unknown: " + e.Path + " may not be written"})
		default:
			if f := check.run(ctx); ctx.Err() == nil { // otherwise the finding would be about ctx
				report(f)
			}
		}
	}

	report(Finding{
		Check: "requests", Status: OK, Looked: "what this examination has sent",
		Found: fmt.Sprintf("%d requests, in sessions and four-letter words", e.requests.Load()),
	})
	return ctx.Err()
}

// hasChroot reports whether the chroot exists. It reports a missing chroot as a finding: a lock
// below a mistyped chroot is not the lock of the other clients.
func (e *examination) hasChroot(ctx context.Context) bool {
	if e.chroot == "" {
		return true
	}
	if yes, err := absolute(ctx, e, func(c *zk.Conn) (bool, *zk.Stat, error) { return c.Exists(e.chroot) }); err != nil || yes {
		return true
	}
	e.report(Finding{Check: "chroot", Status: Fail, Looked: "the node " + e.chroot, Found: "there is no such node", Do: "correct the connect string, or create the node"})
	return false
}
