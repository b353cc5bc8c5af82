package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// AwaitChroot waits for a session. If the chroot must exist and doesn't, it returns an error.
func (c *Access) AwaitChroot(ctx context.Context) error {
	for {
		s, err := c.Current(ctx)
		if err != nil || !c.Existing {
			return err
		}

		b := &Bound{Session: s, View: &c.View, Retried: c.Retried}
		stat, err := (*zk.Stat)(nil), b.Sync(ctx, s.Path("/")) // a server that lags may not know the chroot yet
		if err == nil {
			stat, err = b.Exists(ctx, s.Path("/"))
		}

		switch {
		case err == nil && stat == nil:
			return c.NoChroot()
		case errors.Is(err, zk.ErrNoAuth): // only an existing node can be denied
			return nil
		case err == nil || ctx.Err() != nil || s.Err() == nil || c.Closing.Err() != nil:
			return err
		}
	}
}
