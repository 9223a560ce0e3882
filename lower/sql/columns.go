package sql

import (
	"strings"
	"sync"
)

// class is what a column's name says about what it may hold.
type class struct {
	own      bool // the row's own key: never NULL, never 0
	key      bool // a key of this or another table: 1 and more
	nullable bool // NULL in many rows: deleted_at, parent_id, error
	past     bool // never in the future: created_at
	email    bool
	boolean  bool
	textual  bool // a word, not a number
}

var ownKeys = sync.OnceValue(func() map[string]bool {
	return words("ID PK UID UUID GUID OID ROWID _ROWID_ CTID TABLEOID XMIN *")
})

var textNames = sync.OnceValue(func() map[string]bool {
	return words("NAME USERNAME LOGIN TITLE FIRST_NAME LAST_NAME FULL_NAME FIRSTNAME LASTNAME CITY COUNTRY EMAIL MAIL PASSWORD PASSWORD_HASH SLUG URL ADDRESS")
})

// nullables are parts of the names of columns that are NULL in many rows.
var booleanNames = sync.OnceValue(func() map[string]bool {
	return words("ACTIVE ENABLED DELETED DISABLED VERIFIED ADMIN ARCHIVED PUBLISHED VISIBLE LOCKED HIDDEN BANNED PROCESSED DONE COMPLETED PAID OPEN CLOSED READ SEEN")
})

var nullables = []string{"delet", "archiv", "expir", "cancel", "clos", "complet", "finish", "end", "parent", "prev", "next", "error", "fail", "reset", "lock", "paid", "ship", "deliver", "publish", "verif", "confirm", "revok", "read", "sent", "process", "manager", "assign", "reason", "note", "comment", "reply", "merged", "replac", "temp", "tmp", "token", "approv", "reject", "suspend", "disabl", "ban", "last_", "invalid", "retir", "used", "obsolet", "supersed", "left", "resolv"}

var pastNames = []string{"creat", "insert", "added", "updat", "modif", "registered", "joined", "signed_up", "logged", "timestamp", "recorded", "ordered", "occurred"}

// classOf judges a column by its name; own is the name that the changed
// table's own key would have by convention.
func classOf(column, own string) class {
	up := strings.ToUpper(column)
	if ownKeys()[up] || own != "" && up == own {
		return class{own: true, key: true}
	}
	low := strings.ToLower(column)
	c := class{
		key:     strings.HasSuffix(low, "_id") || strings.HasSuffix(column, "Id") || strings.HasSuffix(column, "ID") || strings.HasSuffix(low, "_uuid"),
		past:    holds(low, pastNames) || low == "ts" || low == "time",
		email:   strings.Contains(low, "mail"),
		boolean: booleanNames()[up] || strings.HasPrefix(low, "is_") || strings.HasPrefix(low, "has_") || strings.HasPrefix(column, "Is") && len(column) > 2 && column[2] >= 'A' && column[2] <= 'Z',
		textual: textNames()[up],
	}
	c.nullable = !c.past && holds(low, nullables)
	return c
}

func holds(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
