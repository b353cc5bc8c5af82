package main

import (
	"context"
	"fmt"
	"regexp"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A lock of package lock and one of package rwlock do not respect each other. So what zkr holds of
// the one waits for what came before it of the other. All nodes at a path are numbered by one
// counter. Of two contenders the later one finds the earlier one in the listing that it makes after
// its own node was created. It waits only for earlier ones, so no two wait for each other.
var (
	readsOrWrites = regexp.MustCompile(`(?:-read-|-write-|__READ__|__WRIT__|__rlock__)(\d{10})$`)
	locks         = regexp.MustCompile(`(?:lock-|__lock__)(\d{10})$`)
	number        = regexp.MustCompile(`(\d{10})$`)
)

// behind returns h once no node of the other kind is before it, or an error and h is given back.
func (l locker) behind(ctx context.Context, c *protocol.Client, h held, other *regexp.Regexp) (held, error) {
	s, err := c.Session(ctx)
	for err == nil && h.err() == nil {
		var names []string
		if names, _, err = s.Children(ctx, l.path); err != nil {
			break
		}
		blocker := nearest(names, h.node, other)
		switch {
		case blocker == "":
			return h, nil
		case l.try:
			err = fmt.Errorf("%s: %w", l.path, lock.ErrLocked)
		default:
			_, err = s.WaitNode(ctx, l.path+"/"+blocker, never)
		}
	}
	if err == nil {
		err = h.err()
	}

	// If the servers do not answer in time, the client goes on in the background.
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), quiet)
	defer cancel()
	_ = h.release(release)
	return held{}, err
}

// nearest returns the last one of the other nodes that are before node.
func nearest(names []string, node string, other *regexp.Regexp) string {
	self, last, found := number.FindString(node), "", ""
	for _, name := range names {
		if match := other.FindStringSubmatch(name); match != nil && match[1] < self && match[1] > last {
			last, found = match[1], name
		}
	}
	return found
}

func never(*zk.Stat) bool { return false }
