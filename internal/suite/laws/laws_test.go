package laws

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

var virtual = Virtual()

func TestRefused(t *testing.T)      { Refused(t, virtual) }
func TestCut(t *testing.T)          { Cut(t, virtual) }
func TestCancelled(t *testing.T)    { Cancelled(t, virtual) }
func TestSilence(t *testing.T)      { Silence(t, virtual) }
func TestTaken(t *testing.T)        { Taken(t, virtual) }
func TestForeign(t *testing.T)      { Foreign(t, virtual) }
func TestForeignChild(t *testing.T) { ForeignChild(t, virtual) }
func TestKilled(t *testing.T)       { Killed(t, virtual) }
func TestWaiting(t *testing.T)      { Waiting(t, virtual) }
func TestSecond(t *testing.T)       { Second(t, virtual) }
func TestRest(t *testing.T)         { Rest(t, virtual) }
func TestLag(t *testing.T)          { Lag(t, virtual) }
func TestOutage(t *testing.T)       { Outage(t, virtual) }
func TestTogether(t *testing.T)     { Together(t, virtual) }
func TestStrays(t *testing.T)       { Strays(t, virtual) }
func TestViews(t *testing.T)        { Views(t, virtual) }
func TestSize(t *testing.T)         { Size(t, virtual) }
func TestClocks(t *testing.T)       { Clocks(t, virtual) }
func TestFull(t *testing.T)         { Full(t, virtual) }
func TestDocuments(t *testing.T)    { Documents(t) }
