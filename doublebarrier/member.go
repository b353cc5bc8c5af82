package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// kind is what comes before the sequence number in a member's name.
const kind = "member-"

// memberName matches the names of members: an arrival's owner, how many nodes that has had, the number of members that it
// expects, and the sequence number. The second makes sure that a name is never used again. The owner lasts for several
// sessions, and a container that is created anew begins with sequence number 0.
var memberName = regexp.MustCompile(`^([0-9a-f]{16}-[0-9a-f]{8})-[0-9]+-of-([0-9]+)-` + kind + `-?[0-9]+$`)

// prefix is what the name of the owner's next node begins with.
func prefix(owner string, nodes, n int) string {
	return fmt.Sprintf("%s-%d-of-%d-%s", owner, nodes, n, kind)
}

func isMember(name string) bool {
	_, numbered := protocol.ParseName(name, kind)
	return numbered && memberName.MatchString(name)
}

// ownerOf returns the owner in a member's name.
func ownerOf(member string) string { return memberName.FindStringSubmatch(member)[1] }

// sizeOf returns the number of members in a member's name.
func sizeOf(member string) int {
	// Digits that are out of range become a number that no other member has.
	n, _ := strconv.Atoi(memberName.FindStringSubmatch(member)[2])
	return n
}

// line lists the members, first come first, and counts the other children. There are none if the node above them does
// not exist.
func (b *Barrier) line(ctx context.Context, s *protocol.Session) (line []string, foreign int, err error) {
	children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
		children, _, err := c.Children(s.Path(b.process()))
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, 0, nil
	}
	all := len(children)
	line = slices.DeleteFunc(children, func(child string) bool { return !isMember(child) })
	slices.SortFunc(line, func(x, y string) int {
		a, _ := protocol.ParseName(x, kind)
		b, _ := protocol.ParseName(y, kind)
		return a.Compare(b)
	})
	return line, all - len(line), err
}

// curators are the names of members of Curator's DistributedDoubleBarrier.
var curators = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// refuseCurator returns an error if members of Curator's barrier are at the path, which takes our nodes there for members
// of its own.
func (b *Barrier) refuseCurator(ctx context.Context, s *protocol.Session) error {
	children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
		children, _, err := c.Children(s.Path(b.path))
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if i := slices.IndexFunc(children, curators.MatchString); i >= 0 {
		return fmt.Errorf("%w: %s is not ours, but a member of Curator's double barrier", zk.ErrNodeExists, children[i])
	}
	return err
}
