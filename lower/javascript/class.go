package javascript

import (
	"github.com/cordon-sandbox/cordon"

	"github.com/tdewolff/parse/v2/js"
)

// class evaluates a class: what it computes, initialises and runs when it is
// made.
func (a *analysis) class(d *js.ClassDecl) set {
	c := &class{frame: a.frame, statics: newObject(a.cond), proto: newObject(a.cond)}
	if d.Name != nil {
		c.name = identifier(d.Name.Data)
	}
	if d.Extends != nil {
		c.super = a.value(d.Extends)
		a.extends(c.super)
	}
	self := one(value{k: vClass, p: c})
	outer := a.frame
	a.frame = &frame{parent: outer, vars: map[*js.Var]*set{}, base: a.cond, this: self, home: c, fn: &function{static: true, home: c}}
	if d.Name != nil {
		a.frame.vars[resolve(d.Name)] = &self
	}
	c.frame = a.frame
	for _, e := range d.List {
		switch {
		case e.Method != nil:
			a.classMethod(c, e.Method)
		case e.StaticBlock == nil && !e.Static:
			c.fields = append(c.fields, e)
		}
	}
	c.proto.put("constructor", self)
	for _, e := range d.List {
		switch {
		case e.StaticBlock != nil:
			a.block(e.StaticBlock.List)
		case e.Method == nil && e.Static:
			v := undefined
			if e.Init != nil {
				v = a.value(e.Init)
			}
			a.store(c.statics, a.elementName(e.Name), v)
		}
	}
	a.frame = outer
	if len(c.fields) > 0 && c.ctor == nil {
		// Fields are initialised when an object is made; nobody may do so here.
		a.laterFields(c)
	}
	return self
}

// laterFields runs the initialisers of a class once, for what they name.
func (a *analysis) laterFields(c *class) {
	if a.replay > 0 {
		return
	}
	a.doubt++
	a.cond++
	a.initFields(c, a.instance(c))
	a.cond--
	a.doubt--
}

// extends notes a super class that turns text into code.
func (a *analysis) extends(s set) {
	for _, v := range s.vs {
		if v.k == vSym && (v.s == "Function" || v.s == "FunctionConstructor") {
			a.opaque("extends Function", cordon.OriginUnknown, true)
		}
	}
}

func (a *analysis) classExpr(d *js.ClassDecl) set { return a.class(d) }

func (a *analysis) elementName(n js.ClassElementName) set {
	if n.Private != nil {
		return str(identifier(n.Private.Data))
	}
	return a.propertyName(&n.PropertyName)
}

func (a *analysis) classMethod(c *class, m *js.MethodDecl) {
	s := a.method(m, c)
	f := s.vs[0].p.(*function)
	key := a.elementName(m.Name)
	k, ok := key.text()
	o := c.proto
	if m.Static {
		o = c.statics
	}
	if !ok {
		o.open = true
		o.rest = join(o.rest, s)
		return
	}
	f.name = k
	if k == "constructor" && !m.Static {
		c.ctor = f
		f.ctor = true
		return
	}
	if !m.Get && !m.Set {
		o.put(k, s)
		return
	}
	p := o.props[k]
	if p == nil || !p.accessor {
		o.put(k, set{})
		p = &prop{accessor: true}
		o.props[k] = p
	}
	if m.Get {
		p.get = s
	} else {
		p.set = s
	}
}

// method makes the function of a method.
func (a *analysis) method(m *js.MethodDecl, c *class) set {
	f := &function{params: &m.Params, body: &m.Body, frame: a.frame, with: a.with, gen: m.Generator, home: c, static: m.Static}
	a.functions = append(a.functions, f)
	return one(value{k: vFunc, p: f})
}

// instance is a new object of a class, before its fields are there.
func (a *analysis) instance(c *class) set {
	o := newObject(a.cond)
	o.class = c
	o.proto = a.builtinSuper(c)
	return one(value{k: vObject, p: o})
}

// builtinSuper is what of a class's ancestors is no class of the code.
func (a *analysis) builtinSuper(c *class) set {
	for depth := 0; depth < 32; depth++ {
		v, ok := c.super.single()
		if !ok {
			return c.super
		}
		if v.k != vClass {
			return one(v)
		}
		c = v.p.(*class)
	}
	return unknown
}

// makeInstance is new C(args).
func (a *analysis) makeInstance(c *class, args []set) set {
	this := a.instance(c)
	return join(this, a.runConstructor(c, this, args))
}

// runConstructor runs a constructor, or the inherited one, and the fields. It
// gives what the constructor returned in place of the object that was made;
// that becomes an ancestor of the object as well.
func (a *analysis) runConstructor(c *class, this set, args []set) (made set) {
	a.nest++
	defer func() { a.nest-- }()
	if a.calls > maxCalls || a.nest > maxNest || a.inline > maxInline {
		a.escapeAll(args)
		return set{}
	}
	a.calls++
	defer func() { a.calls-- }()
	if c.ctor == nil {
		for _, v := range c.super.vs {
			if k, ok := v.p.(*class); ok && v.k == vClass && k != c {
				made = join(made, a.runConstructor(k, this, args))
				continue
			}
			a.adopt(this, a.construct(one(v), args))
		}
		if c.super.unk {
			a.escapeAll(args)
		}
	}
	a.initFields(c, this)
	if c.ctor == nil {
		return made
	}
	self, _ := this.single()
	for _, v := range a.runFunction(c.ctor, this, args, false).vs {
		if v.k >= vArray && (v.k != self.k || v.p != self.p) {
			made = join(made, one(v))
		}
	}
	a.adopt(this, made)
	return made
}

func (a *analysis) initFields(c *class, this set) {
	v, ok := this.single()
	if !ok || v.k != vObject {
		return
	}
	outer := a.frame
	for _, e := range c.fields {
		a.frame = &frame{parent: c.frame, vars: map[*js.Var]*set{}, base: a.cond, this: this, home: c, fn: &function{home: c}}
		s := undefined
		if e.Init != nil {
			s = a.value(e.Init)
		}
		a.store(v.p.(*object), a.elementName(e.Name), s)
	}
	a.frame = outer
}
