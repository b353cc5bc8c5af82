package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// expressions returns what the dashboard and the alerts ask Prometheus for, by where it stands.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text := suite.Got(os.ReadFile("dashboard.json"))(t)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			found["panel "+panel.Title+": "+target.Expr] = target.Expr
		}
	}

	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text = suite.Got(os.ReadFile("alerts.yaml"))(t)
	require.NoError(t, yaml.Unmarshal(text, &alerts))
	require.NotEmpty(t, alerts.Groups)
	for _, rule := range alerts.Groups[0].Rules {
		found["alert "+rule.Alert] = rule.Expr
	}
	return found
}

// A page has the series of each name as Prometheus stores them: a set of labels each.
type page map[string][]map[string]string

func parse(t *testing.T, text string) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families := suite.Got(parser.TextToMetricFamilies(strings.NewReader(text)))(t)

	found := make(page)
	for name, family := range families {
		names := []string{name}
		if family.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_count", name + "_sum"}
		}
		for _, name := range names {
			for _, m := range family.GetMetric() {
				labels := map[string]string{"instance": "here"} // which Prometheus adds
				if strings.HasSuffix(name, "_bucket") {
					labels["le"] = "1"
				}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				found[name] = append(found[name], labels)
			}
		}
	}
	return found
}

var (
	selector = regexp.MustCompile(`(zkrecipes_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// Each metric, label and value that the dashboard and the alerts name is served after a
// demonstration.
func TestDashboardAndAlertsNameWhatIsServed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	text, err := run(t.Context(), &out, "127.0.0.1:0", collideWell)
	t.Log(out.String())
	require.NoError(t, err)
	served := parse(t, text)

	for where, expression := range expressions(t) {
		selected := selector.FindAllStringSubmatch(expression, -1)
		require.NotEmpty(t, selected, where)
		grouped := make(map[string]bool)
		for _, s := range selected {
			require.Contains(t, served, s[1], where)
			assert.True(t, someMatch(served[s[1]], s[2]), "%s: no series of %s has %s", where, s[1], s[2])
			for _, labels := range served[s[1]] {
				for label := range labels {
					grouped[label] = true
				}
			}
		}
		for _, by := range grouping.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				assert.Contains(t, grouped, strings.TrimSpace(label), where)
			}
		}
	}
}

// someMatch reports whether one of the series has the labels that a selector asks for.
func someMatch(series []map[string]string, matchers string) bool {
	for _, labels := range series {
		matches := true
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			switch label, operator, value := labels[m[1]], m[2], m[3]; operator {
			case "=":
				matches = matches && label == value
			case "!=":
				matches = matches && label != value
			case "=~":
				matches = matches && regexp.MustCompile("^(?:"+value+")$").MatchString(label)
			}
		}
		if matches {
			return true
		}
	}
	return false
}

// collideWell is collide, again if a busy machine loses a session meanwhile.
func collideWell(ctx context.Context, clients []*protocol.Client) error {
	for {
		if err := collide(ctx, clients); !errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrUncertain) {
			return err
		}
	}
}

// collide has one client find that another one holds a lock, and has one client take an entry of
// which another client has read in a listing.
func collide(ctx context.Context, clients []*protocol.Client) error {
	lease, err := lock.New(clients[0], "/demo/maintenance").Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := lock.New(clients[1], "/demo/maintenance").TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
		return fmt.Errorf("TryLock: %w", err)
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}

	mine, theirs := queue.New(clients[0], "/demo/mail"), queue.New(clients[1], "/demo/mail")
	ids, err := mine.OfferAll(ctx, [][]byte{{1}, {2}, {3}})
	if err != nil {
		return err
	}
	if _, err := mine.Take(ctx); err != nil {
		return err
	}
	if err := theirs.Remove(ctx, ids[1]); err != nil {
		return err
	}
	_, err = mine.Take(ctx)
	return err
}

// With -serve the metrics stay, and the workers go on, until the program is interrupted.
func TestInterruptedDemonstrationEnds(t *testing.T) {
	for _, moment := range []string{"end the session", "served"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			reached := false
			out := writer(func(b []byte) (int, error) {
				if strings.Contains(string(b), moment) {
					reached = true
					interrupt()
				}
				return len(b), nil
			})
			_, err := run(ctx, out, "127.0.0.1:0", func(ctx context.Context, _ []*protocol.Client) error {
				fmt.Fprint(out, "served")
				<-ctx.Done()
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, reached)
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
