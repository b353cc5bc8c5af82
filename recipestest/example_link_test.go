package recipestest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Enroll is a user's code: it makes the caller a member of a group, once, even if the answer to its
// request is lost.
func Enroll(ctx context.Context, client *protocol.Client, group, name string) error {
	for {
		session, err := client.Session(ctx)
		if err != nil {
			return err
		}
		_, err = session.Conn().Create(group+"/"+name, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		switch {
		case errors.Is(err, zk.ErrNoNode):
			_, err = session.Conn().Create(group, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			if err != nil && !errors.Is(err, zk.ErrNodeExists) && !disconnected(err) {
				return err
			}
		case errors.Is(err, zk.ErrNodeExists):
			return nil // it was us, before the answer got lost
		case disconnected(err):
			time.Sleep(100 * time.Millisecond)
		default:
			return err
		}
	}
}

func disconnected(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
}

// Call it TestEnrollSurvivesLostReplies, in a file of yours.
func enrollSurvivesLostReplies(t *testing.T) {
	t.Parallel()
	server := recipestest.Start(t)
	link, group := server.Link(t), server.Root(t)
	client := link.Client(t)

	link.LoseReply(recipestest.OpCreate, 2)
	if err := Enroll(t.Context(), client, group, "ada"); err != nil {
		t.Fatal(err)
	}

	session, err := client.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	members, _, err := session.Conn().Children(group)
	if err != nil {
		t.Fatal(err)
	}

	if len(members) != 1 || members[0] != "ada" {
		t.Errorf("members are %q", members)
	}

	if err := session.Conn().Delete(group+"/ada", -1); err != nil { // or the test would fail: left behind
		t.Error(err)
	}
}

// A test of code that must do its work once although answers get lost.
func ExampleLink() {
	_ = enrollSurvivesLostReplies // go test calls it
}
