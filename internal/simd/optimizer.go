package simd

// SGD are the constants of one step of stochastic gradient descent, named as in
// torch.optim.SGD.
type SGD struct {
	LR          float32
	Momentum    float32
	Dampening   float32 // 0 on the first step of a buffer, whatever the optimizer's setting
	WeightDecay float32
	Nesterov    bool
}

// SGDMomentum does, for every i,
//
//	g := grad[i] + WeightDecay·param[i]
//	buf[i] = Momentum·buf[i] + (1-Dampening)·g
//	param[i] -= LR·buf[i], or LR·(g + Momentum·buf[i]) with Nesterov
//
// Without momentum use Axpy.
func SGDMomentum(param, buf, grad []float32, o SGD) {
	same("SGDMomentum", len(param), len(buf), len(grad))
	noPrefetch.sgd(param, buf, grad, o)
}

func (m Mode) sgd(param, buf, grad []float32, o SGD) {
	if m.has(nesterovKernel) {
		for i := 0; i < len(param); i += chunk {
			n := min(chunk, len(param)-i)
			if o.Nesterov {
				nesterovVec(m.code(), &param[i], &buf[i], &grad[i], n, o.LR, o.Momentum, 1-o.Dampening, o.WeightDecay)
			} else {
				sgdVec(m.code(), &param[i], &buf[i], &grad[i], n, o.LR, o.Momentum, 1-o.Dampening, o.WeightDecay)
			}
		}
		return
	}
	for i, g := range grad {
		g = FMA(param[i], o.WeightDecay, g)
		buf[i] = FMA(buf[i], o.Momentum, float32(g*(1-o.Dampening)))
		if o.Nesterov {
			g = FMA(buf[i], o.Momentum, g)
		} else {
			g = buf[i]
		}
		param[i] = FMA(-g, o.LR, param[i])
	}
}

// Adam are the constants of one step of Adam or AdamW. The caller computes those that
// depend on the step number, in float64. The betas are float64 because 1 - beta of a
// beta rounded to float32 would be off by a part in 80000 for 0.999.
type Adam struct {
	Beta1, Beta2 float64
	StepSize     float32 // lr / (1-beta1ᵗ)
	RootBias2    float32 // √(1-beta2ᵗ)
	Eps          float32
	Decay        float32 // multiplies the parameter first: 1 - lr·weight_decay in AdamW, 1 in Adam
	L2           float32 // weight_decay in Adam, 0 in AdamW
}

// AdamStep does, for every i,
//
//	g := grad[i] + L2·param[i]
//	m[i] = Beta1·m[i] + (1-Beta1)·g
//	v[i] = Beta2·v[i] + (1-Beta2)·g²
//	param[i] = Decay·param[i] - StepSize·m[i] / (√v[i]/RootBias2 + Eps)
func AdamStep(param, m, v, grad []float32, o Adam) {
	same("AdamStep", len(param), len(m), len(v), len(grad))
	noPrefetch.adam(param, m, v, grad, o)
}

// AdamRow is AdamStep in the mode of Apart.
func (mode Mode) AdamRow(param, m, v, grad []float32, o Adam) {
	same("AdamRow", len(param), len(m), len(v), len(grad))
	mode.adam(param, m, v, grad, o)
}

func (mode Mode) adam(param, m, v, grad []float32, o Adam) {
	beta1, fresh1, beta2, fresh2 := float32(o.Beta1), float32(1-o.Beta1), float32(o.Beta2), float32(1-o.Beta2)
	if mode.has(adamKernel) {
		for i := 0; i < len(param); i += chunk {
			adamVec(mode.code(), &param[i], &m[i], &v[i], &grad[i], min(chunk, len(param)-i), beta1, fresh1, beta2, fresh2, o.StepSize, o.RootBias2,
				o.Eps, o.Decay, o.L2)
		}
		return
	}
	for i, g := range grad {
		p := param[i]
		g = FMA(p, o.L2, g)
		m[i] = FMA(m[i], beta1, float32(g*fresh1))
		v[i] = FMA(v[i], beta2, float32(float32(g*fresh2)*g))
		param[i] = float32(p*o.Decay) - float32(m[i]*o.StepSize)/(sqrt(v[i])/o.RootBias2+o.Eps)
	}
}

// Adagrad are the constants of one step of Adagrad.
type Adagrad struct {
	Step float32 // the rate, negated
	Eps  float32
}

// AdagradRow does, for every i, in the mode of Apart,
//
//	sum[i] += grad[i]²
//	param[i] += Step · grad[i]/(√sum[i] + Eps)
func (m Mode) AdagradRow(param, sum, grad []float32, o Adagrad) {
	same("AdagradRow", len(param), len(sum), len(grad))
	if m.has(adagradKernel) {
		for i := 0; i < len(param); i += chunk {
			adagradVec(m.code(), &param[i], &sum[i], &grad[i], min(chunk, len(param)-i), o.Step, o.Eps)
		}
		return
	}
	for i, g := range grad {
		sum[i] += float32(g * g) // rounded, as everywhere
		param[i] = FMA(g/(sqrt(sum[i])+o.Eps), o.Step, param[i])
	}
}
