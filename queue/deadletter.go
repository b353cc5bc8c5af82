package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// reasonLength is how many characters of a reason the name of a dead letter has.
const reasonLength = 100

// origin returns where a dead letter is from and why. That of a former letter is left out.
func (q *Queue) origin(c *claim, attempts int, reason string) string {
	node := c.entry.node
	if n := c.entry.notes; n.origin != "" {
		n.origin = ""
		node = fmt.Sprintf("%s"+protocol.SequenceFormat, n.prefix(c.entry.priority), c.entry.sequence)
	}
	return fmt.Sprintf("%s/%s after %d attempts: %s", q.path, node, attempts, legible(reason))
}

// legible returns the beginning of a text, with blanks for what servers refuse in names. These
// refuse characters that cannot be printed, and those that take two units of UTF-16.
func legible(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && (r < 0xd800 || 0xf900 <= r && r < 0xfff0) {
			return r
		}
		return ' '
	}, text)
	if runes := []rune(text); len(runes) > reasonLength {
		text = string(runes[:reasonLength])
	}
	return text
}

// moveToDeadLetters moves an entry that is claimed under p to the dead letters.
func (q *Queue) moveToDeadLetters(
	life context.Context, p *perSession, c *claim, origin string,
) error {
	dead := q.deadLetters
	dir := p.session.Path(dead.path)
	letter := notes{since: c.since, origin: origin}
	name := "/" + letter.prefix(c.entry.priority)
	const first = 2 // the first operation at the dead letters
	for {
		stat, err := p.session.Exists(life, dead.path)
		if err != nil {
			return err
		}
		if stat != nil && nextNumber(stat) > lastSequence {
			return fmt.Errorf("%w: of the dead letters at %s", protocol.ErrSequenceExhausted, dead.path)
		}

		err = p.settler.settle(life, c, p.deleteEntry(c, c.version),
			&zk.CreateRequest{
				Path: dir + name, Data: c.data,
				Acl: dead.recipe.ACL(dead.path + name), Flags: zk.FlagSequence,
			},
			ring(p.session, dead.path, ""))
		if err == nil {
			q.recipe.Report(protocol.Event{
				Kind: protocol.EventDeadLettered, Session: p.session.ID(), Token: c.token, Count: 1,
			})
		}
		if refusedAt(err) < first || !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := dead.createRecords(life, p.session); err != nil {
			return err
		}
	}
}

// toDeadLetters moves an entry that was reserved once too often to the dead letters. If they do not
// take it, the entry is given back and set aside.
func (q *Queue) toDeadLetters(life context.Context, p *perSession, c *claim) error {
	origin := q.origin(c, c.attempt-1, "not acknowledged by its last consumer")
	err := q.moveToDeadLetters(life, p, c, origin)
	if err == nil {
		p.release(c, true)
		return nil
	}
	if over := p.session.Err(); over != nil {
		p.release(c, false)
		return over
	}

	p.deleteClaim(life, c, false)
	switch {
	case claimGone(err), errors.Is(err, protocol.ErrUncertain), errors.Is(err, zk.ErrBadVersion):
	default:
		err = fmt.Errorf("move to the dead letters at %s: %w", q.deadLetters.path, err)
		p.consumer.setAside(c.entry.node, err)
	}
	return nil
}
